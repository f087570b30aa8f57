"""FedROD: balanced softmax, the loss of each head, and the model of each level."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import unskew as us
from toys import federation_of, small_federation
from unskew.composition.values import Client, Step
from unskew.errors import UnskewError
from unskew.methods import make_method
from unskew.methods.fedrod import FedROD
from unskew.models import make
from unskew.models.functional import Batch, FunctionalModel
from unskew.models.layout import flatten

pytestmark = pytest.mark.usefixtures("hooks_called_once")

QUICK = {"model": "mlp:hidden=8", "rounds": 3, "batch_size": 8, "lr": 0.1}
HEADS = pytest.mark.parametrize("head", ["own", "hypernetwork"])
X = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))


def adapted(part, model="mlp:hidden=4"):
    torch.manual_seed(0)
    network = FunctionalModel(part.adapt(make(model, (5,), 3), X))
    return network, flatten(network.module, network.layout)


def start_of(part, labels):
    network, vector = adapted(part)
    y = torch.tensor(labels)
    client = Client(0, X[: len(y)], y, network, 3)
    return network, client, make_method(part).prepare(client, {"model": vector}, {})


def losses_of(part, network, weights, buffers, batch, start):
    return part.losses(Step(network, weights, buffers, batch), part.scoped(start.refs))


def terms(rod, labels, noise=0.0):
    """The losses of a client's samples, its weights, and the coordinates of each part."""
    network, client, start = start_of(rod, labels)
    trainable = network.layout.trainable
    weights = start.vector[:trainable] + noise * torch.arange(trainable) / trainable
    weights = weights.requires_grad_()
    buffers = network.copy_buffers(start.vector[trainable:])
    batch = Batch(client.x, client.y, torch.ones(len(client.y)))
    losses = losses_of(rod, network, weights, buffers, batch, start)
    places = {
        part: torch.cat(
            [
                torch.arange(entry.start, entry.stop)
                for entry in network.layout.parameters
                if entry.name.startswith(part)
            ]
        )
        for part in ("body", "head", "personal")
    }
    return network, weights, buffers, batch, losses, places


@HEADS
def test_equal_class_counts_make_the_balanced_softmax_plain(head):
    network, weights, buffers, batch, losses, _ = terms(FedROD(head=head), [0, 1, 2, 0, 1, 2])
    plain = F.cross_entropy(network(weights, buffers, batch.x), batch.y, reduction="none")
    torch.testing.assert_close(losses, 2 * plain)  # the personal head is zero: both terms agree


def test_unequal_class_counts_by_hand():
    """Logits zero, counts 2, 1, 0: the balanced probabilities are 2/3, 1/3 and 0."""
    network, client, start = start_of(FedROD(), [0, 0, 1])
    assert start.refs["fedrod/log_counts"].tolist() == [pytest.approx(math.log(2)), 0.0, -math.inf]
    zeros = torch.zeros(network.layout.trainable)
    batch = Batch(client.x, client.y, torch.ones(3))
    losses = losses_of(FedROD(), network, zeros, {}, batch, start)
    plain = math.log(3)
    expected = [math.log(3 / 2) + plain, math.log(3 / 2) + plain, math.log(3) + plain]
    assert losses.tolist() == pytest.approx(expected, rel=1e-5)


def test_a_class_without_samples_is_not_pushed_down():
    _, weights, _, _, losses, places = terms(FedROD(), [0, 0, 1], noise=0.3)
    (slope,) = torch.autograd.grad(losses.sum(), weights)
    assert torch.isfinite(slope).all()
    head = slope[places["head"]]
    assert head[:12].view(3, 4)[2].tolist() == [0.0] * 4
    assert head[12:][2] == 0
    assert head.any()


def test_each_part_learns_from_its_own_term():
    """The personal term changes only the personal head, the balanced one everything else."""
    network, weights, buffers, batch, losses, places = terms(FedROD(), [0, 0, 1], noise=0.3)
    (slope,) = torch.autograd.grad(losses.sum(), weights)
    with network.capture_passes() as passes:
        network(weights, buffers, batch.x)
    generic = network.part("head", weights, buffers, passes[0].features)
    balanced = F.cross_entropy(
        generic + torch.tensor([math.log(2), 0.0, -math.inf]), batch.y, reduction="sum"
    )
    both = F.cross_entropy(network(weights, buffers, batch.x), batch.y, reduction="sum")
    (shared,) = torch.autograd.grad(balanced, weights, retain_graph=True)
    (personal,) = torch.autograd.grad(both, weights)
    rest = torch.cat([places["body"], places["head"]])
    torch.testing.assert_close(slope[rest], shared[rest])
    torch.testing.assert_close(slope[places["personal"]], personal[places["personal"]])


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
@HEADS
def test_with_plain_softmax_the_generic_model_is_fedavg_s_bit_for_bit(federation, runner, head):
    plain = us.train(federation, "fedavg", runner=runner, **QUICK)
    rod = us.train(federation, FedROD(gamma=0, head=head), runner=runner, **QUICK)
    for name, tensor in plain.model.state_dict().items():
        assert torch.equal(tensor, rod.model.state_dict()[name])
    assert plain.last("global", "loss") == rod.last("global", "loss")
    assert rod.last("personal", "loss") != rod.last("local", "loss")


@HEADS
def test_the_global_model_is_the_generic_model(federation, head):
    run = us.train(federation, FedROD(head=head), **QUICK)
    x = torch.randn(7, 5)
    assert torch.equal(run.model(x), run.model.head(run.model.body(x)))


def test_the_personal_head_stays_and_costs_nothing(federation):
    plain, rod = (us.train(federation, name, **QUICK) for name in ("fedavg", "fedrod"))
    assert plain.cost == rod.cost
    ends, starts = [], []

    class Watched(FedROD):
        def finish(self, client, start, trained, state):
            starts.append((client.id, start.vector[-27:].clone()))
            ends.append((client.id, trained.vector[-27:].clone()))
            return super().finish(client, start, trained, state)

    run = us.train(federation, Watched(), **QUICK)
    for client, end in ends[8:]:
        assert torch.equal(run.states[client]["kept"], end)
    assert all(torch.equal(a[1], b[1]) for a, b in zip(ends[:4], starts[4:8], strict=True))
    assert not torch.allclose(ends[0][1], ends[1][1])


def test_the_hypernetwork_is_sent_and_the_proportions_are_not(federation):
    plain = us.train(federation, "fedavg", **QUICK).cost
    rod = us.train(federation, "fedrod:head=hypernetwork,hidden=2", **QUICK).cost
    hyper = (3 * 2 + 2) + (2 + 1) * 3 * (8 + 1)
    for direction in ("parameters_up", "parameters_down"):
        assert getattr(rod, direction) - getattr(plain, direction) == 3 * 4 * hyper


def test_the_hypernetwork_gives_equal_clients_the_same_head():
    x, y = small_federation(holdout=0).train.client(0)
    test = [(x[:5], y[:5]), (x[:5], y[:5])]
    federation = federation_of((x, y), (x[::-1], y[::-1]), test=test)
    run = us.train(federation, "fedrod:head=hypernetwork", **QUICK)
    table = [t for t in run.client_tables if t["kind"] == "personal"][-1]
    assert table["loss"][0] == pytest.approx(table["loss"][1], rel=1e-6)


def test_a_network_without_a_linear_head_is_rejected(federation):
    module = nn.Sequential(nn.Linear(5, 3), nn.LogSoftmax(1))
    with pytest.raises(UnskewError, match="model: fedrod needs a network that ends in a linear"):
        us.train(federation, "fedrod", **QUICK | {"model": module})


def test_a_head_with_more_outputs_than_classes(federation):
    run = us.train(federation, "fedrod", **QUICK | {"model": nn.Linear(5, 7)})
    assert run.rounds == 3


def test_it_composes_with_other_terms(federation):
    us.train(federation, "fedrod+moon:projection=4+fedprox:mu=1", **QUICK)
    us.train(federation, "moon:projection=0+fedrod", **QUICK)
