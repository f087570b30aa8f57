"""FedSAM and its relatives: against their formulas step by step, and against what they extend."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import unskew as us
from toys import federation_of, vector_of
from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Server, Step
from unskew.errors import UnskewError
from unskew.methods import make_method
from unskew.methods.common.sharpness import ascent
from unskew.methods.fedsam import FedSAM

RHO, LR, STEPS, ROUNDS = 0.3, 0.2, 3, 3
FULL_BATCHES = {"model": "logistic", "batch_size": 1000, "steps": STEPS, "lr": LR}


@pytest.fixture(scope="module")
def clients():
    rng = np.random.default_rng(3)
    return [(rng.normal(size=(n, 4)), rng.integers(0, 3, n)) for n in (6, 9)]


def trained(clients, method, **options):
    run = us.train(federation_of(*clients), method, **FULL_BATCHES | {"rounds": ROUNDS} | options)
    return vector_of(run).double()


class Reference:
    """Clients of equal weight that take full-batch steps on a linear classifier, in float64."""

    def __init__(self, clients):
        self.data = [(torch.tensor(x), torch.tensor(y)) for x, y in clients]
        run = us.train(federation_of(*clients), "fedavg", rounds=1, **FULL_BATCHES | {"lr": 1e-30})
        self.model = vector_of(run).double()
        self.last = [None] * len(clients)
        self.zeros = torch.zeros_like(self.model)

    def slope(self, k, weights):
        """The gradient of client k's mean loss."""
        leaf = weights.clone().requires_grad_()
        x, y = self.data[k]
        loss = F.cross_entropy(x.double() @ leaf[:12].view(3, 4).T + leaf[12:], y)
        return torch.autograd.grad(loss, leaf)[0]

    def perturbed_slope(self, k, weights):
        slope = self.slope(k, weights)
        return self.slope(k, weights + RHO * slope / slope.norm())

    def locally(self, k, direction):
        """The weights of client k after its steps along a direction."""
        weights = self.model
        for _ in range(STEPS):
            weights = weights - LR * direction(k, weights)
        return weights


def test_fedsam_follows_its_formula(clients):
    reference = Reference(clients)
    for _ in range(ROUNDS):
        rows = [reference.locally(k, reference.perturbed_slope) for k in (0, 1)]
        reference.model = sum(rows) / 2
    torch.testing.assert_close(trained(clients, f"fedsam:rho={RHO}+mean"), reference.model)


def test_mofedsam_follows_its_formula(clients):
    """The momentum is the mean gradient of the last round's steps: its update over lr times K."""
    reference, momentum = Reference(clients), 0.0
    for _ in range(ROUNDS):

        def direction(k, weights, momentum=momentum):
            return 0.4 * reference.perturbed_slope(k, weights) + 0.6 * momentum

        rows = [reference.locally(k, direction) for k in (0, 1)]
        before, reference.model = reference.model, sum(rows) / 2
        momentum = (before - reference.model) / (LR * STEPS)
    mixed = trained(clients, f"mofedsam:rho={RHO},alpha=0.4+mean")
    torch.testing.assert_close(mixed, reference.model)


def test_fedlesam_follows_its_formula(clients):
    """Client 1 misses the second round, so its direction is that of two rounds in the third."""
    reference = Reference(clients)
    for cohort in ((0, 1), (0,), (0, 1)):
        rows = []
        for k in cohort:
            last = reference.model if reference.last[k] is None else reference.last[k]
            shift = last - reference.model
            shift = RHO * shift / shift.norm() if shift.any() else shift
            rows.append(reference.locally(k, lambda k, w, s=shift: reference.slope(k, w + s)))
            reference.last[k] = reference.model
        reference.model = sum(rows) / len(rows)

    class Absent(us.Setup):
        replaces = frozenset({us.methods.Aspect.CANDIDATES})

        def candidates(self, clients, round_, seed):
            return [0] if round_ == 1 else [0, 1]

    method = make_method(f"fedlesam:rho={RHO}+mean") + Absent()
    torch.testing.assert_close(trained(clients, method), reference.model)


def test_fedspeed_follows_its_formula(clients):
    """h_k adds up a client's updates; the mean of all h_k corrects the mean of the models."""
    reference, alpha, share = Reference(clients), 0.5, 0.7
    h = [reference.zeros, reference.zeros]
    for _ in range(ROUNDS):

        def direction(k, weights, h=h):
            mixed = (1 - share) * reference.slope(k, weights)
            mixed += share * reference.perturbed_slope(k, weights)
            return mixed + alpha * (weights - reference.model + h[k])

        rows = [reference.locally(k, direction) for k in (0, 1)]
        h = [h[k] + rows[k] - reference.model for k in (0, 1)]
        reference.model = sum(rows) / 2 + sum(h) / 2
    speed = trained(clients, f"fedspeed:alpha={alpha},rho={RHO},share={share}")
    torch.testing.assert_close(speed, reference.model)


def test_fedsmoo_follows_its_formula(clients):
    """FedSpeed's terms, and a dual variable per client that changes in every step."""
    reference, alpha = Reference(clients), 0.5
    h, dual = [reference.zeros, reference.zeros], [reference.zeros, reference.zeros]
    common = reference.zeros
    for _ in range(ROUNDS):

        def direction(k, weights, h=h, common=common):
            ahead = reference.slope(k, weights) - dual[k] - common
            shift = RHO * ahead / ahead.norm()
            dual[k] = dual[k] + shift - common
            slope = reference.slope(k, weights + shift)
            return slope + alpha * (weights - reference.model + h[k])

        rows = [reference.locally(k, direction) for k in (0, 1)]
        h = [h[k] + rows[k] - reference.model for k in (0, 1)]
        reference.model = sum(rows) / 2 + sum(h) / 2
        common = RHO * sum(dual) / sum(dual).norm()
    smoo = trained(clients, f"fedsmoo:alpha={alpha},rho={RHO}")
    torch.testing.assert_close(smoo, reference.model, rtol=1e-5, atol=1e-5)


DYN = "feddyn:alpha=0.1,evaluate=sent"


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
@pytest.mark.parametrize(
    ("method", "other"),
    [
        ("fedsam:rho=0", "fedavg"),
        ("fedsam:rho=0,adaptive=true", "fedavg"),
        ("mofedsam:alpha=1,rho=0.2", "fedsam:rho=0.2"),
        ("fedlesam:rho=0", "fedavg"),
        ("fedspeed:rho=0", DYN),
        ("fedspeed:rho=0.2", f"{DYN}+fedsam:rho=0.2"),
        ("fedsmoo:rho=0", DYN),
    ],
)
def test_without_its_own_part_it_is_what_it_extends(federation, method, other, runner):
    options = {"model": "mlp:hidden=6", "rounds": 2, "batch_size": 8, "lr": 0.1, "runner": runner}
    first, second = (us.train(federation, each, **options) for each in (method, other))
    assert torch.equal(vector_of(first), vector_of(second))


def test_the_first_round_of_fedlesam_is_that_of_fedavg(federation):
    options = {"model": "logistic", "rounds": 1, "batch_size": 8, "lr": 0.1}
    first, second = (us.train(federation, each, **options) for each in ("fedlesam:rho=9", "fedavg"))
    assert torch.equal(vector_of(first), vector_of(second))


def test_the_perturbation_by_hand():
    """The gradient 3, 4 has length 5. Adaptive: |w| g = 6, 4 is scaled to rho, then by |w|."""
    assert ascent(torch.tensor([3.0, 4.0]), 0.5).tolist() == pytest.approx([0.3, 0.4])
    assert ascent(torch.zeros(2), 0.5).tolist() == [0.0, 0.0]
    weights, gradient = torch.tensor([-2.0, 1.0]), torch.tensor([3.0, 4.0])
    step = Step(None, weights, {}, None, gradient=gradient)
    length = 52**0.5
    shift = FedSAM(rho=0.5, adaptive=True).perturbation(step, {}).shift
    assert shift.tolist() == pytest.approx([2 * 6 / length / 2, 4 / length / 2])


def test_the_momentum_of_mofedsam_by_hand():
    """The model moved from 5 to 2; 30 and 10 samples with effective steps 1 and 3: 3 / 1.5."""
    uploads = Uploads.of(
        torch.tensor([[1.0], [5.0]]), samples=[30, 10], previous=torch.tensor([5.0])
    )
    extras = {"mofedsam/effective_step": [torch.tensor(1.0), torch.tensor(3.0)]}
    uploads = Uploads(**{**vars(uploads), "extras": extras})
    server, _ = make_method("mofedsam").aggregate(Server(torch.tensor([5.0])), uploads)
    assert server.vector.tolist() == [2.0]
    assert server.state["mofedsam/momentum"].tolist() == [2.0]


def test_personal_coordinates_keep_their_whole_gradient(federation):
    """In the first round there is no momentum, so shared coordinates take alpha of the step."""
    options = {"model": "logistic", "rounds": 1, "steps": 1, "lr": 0.1, "runner": "loop"}
    heads = [
        us.train(federation, f"{method}+fedper", **options).states[0]["kept"]
        for method in ("fedsam", "mofedsam")
    ]
    assert torch.equal(*heads)


def test_mofedsam_needs_sgd(federation):
    with pytest.raises(UnskewError, match="optimizer: mofedsam"):
        us.train(federation, "mofedsam", rounds=1, optimizer="adam", model="logistic")


def test_two_perturbations_clash():
    with pytest.raises(UnskewError, match="both replace where gradients are taken"):
        make_method("fedsam+fedlesam")
