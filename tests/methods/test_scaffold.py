"""SCAFFOLD: its control variates, convergence, and traffic."""

import pytest
import torch
import torch.nn.functional as F

import unskew as us
from toys import federation_of, slope, small_federation, vector_of
from unskew.composition.parts import Personalization
from unskew.engine.optimizer import SGD, Adam
from unskew.errors import UnskewError
from unskew.methods.scaffold import SCAFFOLD
from unskew.models import make

pytestmark = pytest.mark.usefixtures("hooks_called_once")

RUNNERS = pytest.mark.parametrize("runner", ["loop", "vectorised"])
QUICK = {"model": "logistic", "batch_size": 8, "lr": 0.1}


class Watched(SCAFFOLD):
    """Records both kinds of control variates, round by round."""

    def conclude(self, before, after, uploads, diagnostics):
        concluded, found = super().conclude(before, after, uploads, diagnostics)
        COMMON.append(concluded.state["control"].clone())
        return concluded, found

    def finish(self, client, start, trained, state):
        finished = super().finish(client, start, trained, state)
        OWN[client.id] = finished.state["control"]
        CORRECTIONS.setdefault(len(COMMON), {})[client.id] = start.refs["correction"]
        return finished


COMMON: list = []
OWN: dict = {}
CORRECTIONS: dict = {}


def watch(federation, **options):
    for memory in (COMMON, OWN, CORRECTIONS):
        memory.clear()
    return us.train(federation, Watched(), **QUICK | options)


@RUNNERS
def test_the_first_round_is_mean_bit_for_bit(federation, runner):
    options = QUICK | {"rounds": 1, "epochs": 3, "runner": runner}
    mean, scaffold = (us.train(federation, name, **options) for name in ("mean", "scaffold"))
    assert torch.equal(vector_of(mean), vector_of(scaffold))
    assert mean.metrics[0]["train_loss"] == scaffold.metrics[0]["train_loss"]


@pytest.mark.parametrize("cohort", [1, 2, 4])
def test_the_server_s_variate_is_the_mean_of_all_clients(federation, cohort):
    """Also with partial participation: clients that never took part count as zeros."""
    watch(federation, rounds=5, epochs=2, cohort=cohort)
    everyone = torch.stack([OWN.get(k, torch.zeros_like(COMMON[0])) for k in range(4)])
    torch.testing.assert_close(COMMON[-1], everyone.mean(0), rtol=1e-4, atol=1e-6)


def test_corrections_cancel_over_all_clients(federation):
    watch(federation, rounds=4, epochs=2)
    for corrections in list(CORRECTIONS.values())[1:]:
        stacked = torch.stack(list(corrections.values()))
        assert stacked.abs().max() > 0.01
        assert stacked.sum(0).abs().max() < 1e-5


def by_hand(federation, *, lr, steps, rounds):
    """The published algorithm, full batches, with torch's own gradients."""
    x = make("logistic", (5,), 3)
    clients = [federation.train.client(k) for k in range(len(federation))]
    model = [p.detach().clone() for p in x.parameters()]
    common = [torch.zeros_like(p) for p in model]
    own = [[torch.zeros_like(p) for p in model] for _ in clients]
    for _ in range(rounds):
        ends = []
        for k, (features, labels) in enumerate(clients):
            local = [p.clone().requires_grad_() for p in model]
            for _ in range(steps):
                output = F.linear(torch.from_numpy(features), local[0], local[1])
                loss = F.cross_entropy(output, torch.from_numpy(labels).long())
                slopes = torch.autograd.grad(loss, local)
                moves = [g + c - ck for g, c, ck in zip(slopes, common, own[k], strict=True)]
                local = [
                    (p - lr * m).detach().requires_grad_()
                    for p, m in zip(local, moves, strict=True)
                ]
            ends.append([p.detach() for p in local])
        renewed = [
            [
                ck - c + (p - q) / (steps * lr)
                for ck, c, p, q in zip(own[k], common, model, end, strict=True)
            ]
            for k, end in enumerate(ends)
        ]
        model = [torch.stack(parts).mean(0) for parts in zip(*ends, strict=True)]
        own = renewed
        common = [torch.stack(parts).mean(0) for parts in zip(*own, strict=True)]
    return torch.cat([p.reshape(-1) for p in model])


@RUNNERS
def test_it_is_the_published_algorithm(federation, runner):
    options = {"model": "logistic", "batch_size": 1000, "lr": 0.2, "steps": 3, "rounds": 4}
    run = us.train(federation, "scaffold", runner=runner, **options)
    expected = by_hand(federation, lr=0.2, steps=3, rounds=4)
    torch.testing.assert_close(vector_of(run), expected, rtol=1e-4, atol=1e-5)


def test_it_converges_where_the_mean_of_the_losses_is_flat_and_mean_does_not():
    """Clients that disagree, many local steps: the drift of Mean is what SCAFFOLD removes."""
    federation = small_federation(sizes=(30, 30, 30), holdout=0)
    options = {"model": "logistic", "batch_size": 1000, "lr": 0.3, "steps": 10, "rounds": 22}
    options["weight_decay"] = 0.1
    slopes = {}
    for name in ("mean", "scaffold"):
        run = us.train(federation, name, **options)
        slopes[name] = slope(run, federation, weight_decay=0.1)
    assert slopes["scaffold"] < 1e-4
    assert slopes["mean"] > 1e-3


@pytest.mark.parametrize("local", [{"momentum": 0.9}, {"momentum": 0.0}])
def test_a_variate_is_a_mean_of_gradients_also_with_momentum(local):
    """One sample and a linear loss: the control variate must be its gradient."""
    x, y = small_federation().train.client(0)
    federation = federation_of((x, y), (x, y))
    watch(federation, batch_size=1000, lr=1e-4, steps=5, rounds=1, **local)
    module = make("logistic", (5,), 3)
    loss = F.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y).long())
    slope = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(module.parameters()))])
    torch.testing.assert_close(OWN[0], slope, rtol=0.02, atol=2e-3)


def test_effective_step_by_hand():
    assert SGD(0.5, 0.0, 0.0).effective_step(4, 0.0) == 2.0
    assert SGD(1.0, 0.5, 0.0).effective_step(3, 0.0) == 1 + 1.5 + 1.75
    assert SGD(0.1, 0.0, 0.0).effective_step(2, 2.0) == pytest.approx(0.1 + (0.1 - 0.1 * 2 * 0.1))
    assert SGD(0.1, 0.9, 0.0).effective_step(0, 0.0) == 0.0
    assert Adam(0.1, 0.0).effective_step(3, 0.0) is None


def test_it_sends_a_control_variate_with_every_model_but_the_first(federation):
    run = us.train(federation, "scaffold", rounds=3, **QUICK)
    numbers = 5 * 3 + 3
    assert run.cost.parameters_up == 3 * 4 * 2 * numbers
    assert run.cost.parameters_down == 3 * 4 * numbers + 2 * 4 * numbers
    assert run.cost.bytes_up == 4 * run.cost.parameters_up


def test_local_coordinates_are_neither_corrected_nor_sent(federation):
    class OwnBias(Watched, Personalization):
        def stays(self, layout):
            return torch.arange(layout.size) >= 15

    for memory in (COMMON, OWN, CORRECTIONS):
        memory.clear()
    run = us.train(federation, OwnBias(), rounds=3, **QUICK)
    assert COMMON[-1].shape == (15,)
    assert all(float(c[15:].abs().sum()) == 0 for c in CORRECTIONS[2].values())
    assert run.cost.parameters_up == 3 * 4 * (15 + 15)


def test_adam_is_rejected(federation):
    with pytest.raises(UnskewError, match="optimizer: scaffold estimates gradients"):
        us.train(federation, "scaffold", model="logistic", rounds=1, optimizer="adam")
