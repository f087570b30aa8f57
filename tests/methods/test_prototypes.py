"""FedProto, FedPAC and FedAS: prototypes, mixed heads, alignment, and what they extend."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

import unskew as us
from toys import federation_of, vector_of
from unskew.aggregation.simplex import least_quadratic
from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Client, Server, Step
from unskew.methods import fedas, fedpac
from unskew.methods.common.features import (
    distance_to_prototypes,
    features_of,
    prototype_term,
    prototypes_of,
    weighted_prototypes,
)
from unskew.methods.fedas import FedAS, fisher_trace
from unskew.methods.fedpac import head_weights, statistics
from unskew.methods.fedproto import FedProto, with_nearest_prototype
from unskew.models import make
from unskew.models.functional import Batch, ForwardPass, FunctionalModel
from unskew.models.layout import Layout, flatten

pytestmark = pytest.mark.usefixtures("hooks_called_once")

QUICK = {"model": "mlp:hidden=6", "rounds": 3, "batch_size": 8, "lr": 0.1}


def client_of(x, y, classes=3, network=None):
    network = network or FunctionalModel(nn.Linear(len(x[0]), classes))
    return Client(0, torch.tensor(x), torch.tensor(y), network, classes)


def kept(run):
    return [run.states[k]["kept"] for k in sorted(run.states)]


def test_prototypes_by_hand():
    """Class 0 has the features (1, 2) and (3, 4), class 2 has (5, 5), class 1 has none."""
    client = client_of([[0.0]] * 3, [0, 2, 0])
    features = torch.tensor([[1.0, 2.0], [5.0, 5.0], [3.0, 4.0]])
    assert prototypes_of(client, features).tolist() == [[2, 3], [0, 0], [5, 5]]


def test_the_distance_by_hand():
    """(1 + 4) / 2 for the first sample; the second one's class has no prototype."""
    prototypes = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    features = torch.tensor([[1.0, 3.0], [7.0, 7.0]])
    assert distance_to_prototypes(features, prototypes, torch.tensor([0, 1])).tolist() == [2.5, 0.0]


def test_the_term_by_hand():
    """Distances 2.5 and 2 with the scales 1/4 and 3/4: 0.625 + 1.5, four times."""
    prototypes = torch.tensor([[0.0, 1.0], [6.0, 6.0]])
    features = torch.tensor([[1.0, 3.0], [6.0, 8.0]])
    batch = Batch(torch.zeros(2, 1), torch.tensor([0, 1]), torch.tensor([0.25, 0.75]))
    passed = ForwardPass(torch.zeros(2, 2), features)
    step = Step(None, torch.zeros(1), {}, batch, passed)
    assert float(prototype_term(4.0, step, prototypes)) == 8.5
    assert prototype_term(0.0, step, prototypes) is None
    assert prototype_term(4.0, step, None) is None


def test_mean_prototypes_by_hand():
    """Weights 1 and 3 of class 0; nobody has class 1, which keeps its last prototype."""
    sent = torch.tensor([[[4.0], [9.0]], [[8.0], [9.0]]])
    weights = torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    assert weighted_prototypes(sent, weights, None).tolist() == [[7.0], [0.0]]
    last = torch.tensor([[1.0], [2.0]])
    assert weighted_prototypes(sent, weights, last).tolist() == [[7.0], [2.0]]


def test_a_linear_head_finds_the_nearest_prototype():
    module = make("mlp:hidden=6", (5,), 4, seed=0)
    network = FunctionalModel(module)
    prototypes = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    prototypes[2] = 0  # no client has this class
    vector = with_nearest_prototype(network.layout, flatten(module, network.layout), prototypes)
    found = network.forward_eval(
        vector, torch.randn(50, 5, generator=torch.Generator().manual_seed(1))
    )
    distances = torch.cdist(found.features, prototypes)
    distances[:, 2] = torch.inf
    assert torch.equal(found.output.argmax(1), distances.argmin(1))
    assert len(set(found.output.argmax(1).tolist())) == 3


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_fedproto_without_its_term_is_local_training(federation, runner):
    options = QUICK | {"runner": runner}
    proto = us.train(federation, "fedproto:lam=0,predict=head", **options)
    alone = us.train(federation, "local", **options)
    assert all(torch.equal(*pair) for pair in zip(kept(proto), kept(alone), strict=True))
    assert proto.last("personal") == alone.last("personal")
    with_term = us.train(federation, "fedproto:lam=1,predict=head", **options)
    assert not torch.equal(kept(with_term)[0], kept(alone)[0])


@pytest.mark.parametrize("weights", ["samples", "equal"])
def test_the_server_averages_the_features_of_trained_models(federation, weights):
    found = {}

    class Watched(FedProto):
        def finish(self, client, start, trained, state):
            found[client.id] = features_of(client, trained.vector), client.y
            return super().finish(client, start, trained, state)

        def conclude(self, before, after, uploads, diagnostics):
            after, more = super().conclude(before, after, uploads, diagnostics)
            found["server"] = after.state["prototypes"]
            return after, more

    us.train(federation, Watched(weights=weights), **QUICK | {"rounds": 1})
    common = found.pop("server")
    for label in range(3):
        of_class = [features[y == label] for features, y in found.values() if (y == label).any()]
        rows = of_class if weights == "equal" else [torch.cat(of_class)]
        expected = torch.stack([each.mean(0) for each in rows]).mean(0)
        torch.testing.assert_close(common[label], expected)


def test_weights_of_heads_by_hand():
    """The same means: inverse variances. Means far apart: each client its own head."""
    same = head_weights(torch.ones(2, 3, 4).double(), torch.tensor([1.0, 3.0]).double())
    torch.testing.assert_close(same, torch.tensor([[0.75, 0.25]] * 2).double())
    far = torch.stack([torch.zeros(3, 4), 100 * torch.ones(3, 4)]).double()
    assert torch.equal(head_weights(far, torch.tensor([1.0, 3.0]).double()), torch.eye(2).double())


def test_the_smallest_quadratic_on_a_grid():
    generator = torch.Generator().manual_seed(0)
    grid = [g for g in itertools.product(np.linspace(0, 1, 41), repeat=3) if abs(sum(g) - 1) < 1e-9]
    points = torch.tensor(np.array(grid))
    for _ in range(5):
        root = torch.randn(3, 3, generator=generator).double()
        matrix = root @ root.T
        found = least_quadratic(matrix)
        assert found.min() >= 0
        assert float(found.sum()) == pytest.approx(1)
        best = torch.einsum("ni,ij,nj->n", points, matrix, points).min()
        assert float(found @ matrix @ found) <= float(best) + 1e-9
    assert least_quadratic(torch.zeros(2, 2).double()).sum() == pytest.approx(1)


def test_statistics_by_hand():
    """Features 2 and 4 of two classes: means 1 and 2, (4 + 16)/2 - (1 + 4) = 5, over 2 samples."""
    means, variance = statistics(
        client_of([[0.0]] * 2, [0, 1], classes=2), torch.tensor([[2.0], [4.0]])
    )
    assert means.tolist() == [[1.0], [2.0]]
    assert variance.item() == 2.5


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_fedpac_without_term_and_mix_is_fedrep(federation, runner, monkeypatch):
    monkeypatch.setattr(fedpac, "head_weights", lambda means, _: torch.eye(len(means)).double())
    options = QUICK | {"runner": runner}
    pac = us.train(federation, "fedpac:lam=0", **options)
    rep = us.train(federation, "fedrep:head_epochs=1,fallback=average", **options)
    assert torch.equal(vector_of(pac), vector_of(rep))
    assert all(torch.equal(*pair) for pair in zip(kept(pac), kept(rep), strict=True))


def test_fedpac_starts_a_head_from_its_mix(federation, monkeypatch):
    """With all weight on client 0, the next head of every client starts from client 0's."""
    shares = torch.zeros(4, 4, dtype=torch.float64)
    shares[:, 0] = 1
    monkeypatch.setattr(fedpac, "head_weights", lambda *_: shares)
    starts, ends = [], {}

    class Watched(fedpac.FedPAC):
        def prepare(self, client, start, payload, state):
            prepared = super().prepare(client, start, payload, state)
            if client.round == 1 and "round" in state and int(state["round"]) == 0:
                starts.append(prepared.vector[-21:])
            return prepared

        def finish(self, client, start, trained, state):
            ends[client.round, client.id] = trained.vector[-21:]
            return super().finish(client, start, trained, state)

    us.train(federation, Watched(), **QUICK | {"rounds": 2, "runner": "loop"})
    assert len(starts) == 4
    for head in starts:
        torch.testing.assert_close(head, ends[0, 0])


def test_the_fisher_trace_by_hand():
    """Zero weights predict 1/2: the gradient is ±1/2 for two weights (x = 1) and two biases."""
    client = client_of([[1.0]], [0], classes=2)
    assert fisher_trace(client, torch.zeros(4), 1).item() == pytest.approx(1.0)
    assert fisher_trace(client, torch.zeros(4), 2).item() == pytest.approx(0.5)  # half a batch
    two = client_of([[1.0], [1.0]], [0, 1], classes=2)
    assert fisher_trace(two, torch.zeros(4), 1).item() == pytest.approx(2.0)
    assert fisher_trace(two, torch.zeros(4), 2).item() == pytest.approx(0.0)  # they cancel


def test_clients_count_by_their_fisher_trace():
    rng = np.random.default_rng(0)
    easy = np.array([[5.0, 0.0]] * 20), np.zeros(20, int)
    hard = rng.normal(size=(20, 2)), rng.integers(0, 2, 20)
    federation = federation_of(easy, hard, classes=2)
    run = us.train(federation, "fedas", model="mlp:hidden=4", rounds=8, lr=0.5, batch_size=5)
    assert run.client_tables[-1]["weight"][1] > 0.9


def test_weights_are_proportional_to_the_fisher_traces():
    layout = Layout.of(nn.Linear(1, 1))
    uploads = Uploads.of(
        torch.zeros(3, 2),
        layout=layout,
        samples=[9, 9, 90],
        extras={"fisher": torch.tensor([1.0, 3.0, 0.0])},
    )
    weights = FedAS().client_weights(Server(torch.zeros(2)))(uploads)
    assert weights.tolist() == [0.25, 0.75, 0.0]


def test_an_alignment_step_by_hand():
    """The features of x are w x, and p x with the client's last body: so are the prototypes, since
    each class has one x. The mean of (w x - p x)² over x = 1 and 2 has the slope 5 (w - p)."""
    x, y = np.array([[1.0], [2.0]]), np.array([0, 1])
    federation = federation_of((x, y), (x, 1 - y), classes=2)
    network = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 2))
    moved = []

    class Watched(FedAS):
        def prepare(self, client, start, payload, state):
            prepared = super().prepare(client, start, payload, state)
            if "previous" in state:
                vectors = (start.received, state["previous"], prepared.vector)
                moved.append([float(each[0]) for each in vectors])
            return prepared

    us.train(federation, Watched(), model=network, rounds=3, batch_size=2, lr=0.1)
    assert len(moved) == 4
    for received, previous, aligned in moved:
        assert received != pytest.approx(previous)
        assert aligned == pytest.approx(received - 0.1 * 5 * (received - previous))


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_a_new_client_is_not_aligned_by_weight_decay(federation, runner):
    options = QUICK | {"rounds": 1, "runner": runner, "weight_decay": 0.5}
    aligned, plain = (us.train(federation, m, **options) for m in ("fedas", "fedas:align_epochs=0"))
    assert torch.equal(vector_of(aligned), vector_of(plain))


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_fedas_without_alignment_and_weights_is_fedper(federation, runner, monkeypatch):
    monkeypatch.setattr(fedas, "fisher_trace", lambda *_: torch.zeros(()))
    options = QUICK | {"runner": runner}
    plain = us.train(federation, "fedas:align_epochs=0", **options)
    other = us.train(federation, "fedper", **options)
    assert torch.equal(vector_of(plain), vector_of(other))
    assert all(torch.equal(*pair) for pair in zip(kept(plain), kept(other), strict=True))


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_alignment_moves_the_received_body_towards_the_client(federation, runner):
    """A new client's body stays as it is; later, features come nearer to its last model's."""
    gains = []

    class Watched(FedAS):
        def prepare(self, client, start, payload, state):
            prepared = super().prepare(client, start, payload, state)
            if "previous" not in state:
                assert torch.equal(prepared.vector, start.received)
                return prepared
            target = prototypes_of(client, features_of(client, state["previous"]))
            y = client.y.long()
            before, after = (
                distance_to_prototypes(features_of(client, each), target, y).mean()
                for each in (start.received, prepared.vector)
            )
            gains.append(float(before - after))
            assert torch.equal(
                prepared.vector[-21:], start.received[-21:]
            )  # the head is not aligned
            return prepared

    us.train(federation, Watched(align_epochs=3), **QUICK | {"runner": runner})
    assert len(gains) == 8
    assert np.mean(gains) > 0
    assert min(gains) > -1e-3


def test_weights_are_equal_if_the_solver_does_not_converge(monkeypatch):
    def diverges(*_, **__):
        raise RuntimeError("Maximum number of iterations reached.")

    monkeypatch.setattr("scipy.optimize.nnls", diverges)
    assert least_quadratic(torch.eye(4)).tolist() == [0.25] * 4


def test_a_head_without_a_bias_is_kept():
    layout = Layout.of(nn.ModuleDict({"head": nn.Linear(2, 3, bias=False)}))
    vector = torch.arange(6.0)
    assert with_nearest_prototype(layout, vector, torch.ones(3, 2)) is vector
