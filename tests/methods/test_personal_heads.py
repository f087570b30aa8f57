"""FedPer, FedRep and FedBABU: how body and head are trained and sent."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import unskew as us
from toys import federation_of, loss_after_steps, vector_of
from unskew.composition.parts import ClientSide, Personalization
from unskew.errors import UnskewError
from unskew.methods import make_method
from unskew.methods.common.head import head_mask
from unskew.methods.fedbabu import FedBABU
from unskew.methods.fedper import FedPer
from unskew.methods.fedrep import FedRep
from unskew.models import make
from unskew.models.layout import Layout, flatten

pytestmark = pytest.mark.usefixtures("hooks_called_once")

OPTIONS = {"model": "mlp:hidden=6", "rounds": 3, "batch_size": 8, "lr": 0.1}
RUNNERS = pytest.mark.parametrize("runner", ["loop", "vectorised"])
BODY, HEAD = 5 * 6 + 6, 6 * 3 + 3
LAYOUT = Layout.of(make("mlp:hidden=6", (5,), 3))
IN_HEAD = head_mask(LAYOUT)
START = flatten(make("mlp:hidden=6", (5,), 3), LAYOUT)


def logged(cls, **options):
    """A part that records where each client's training starts and ends, in order."""
    log: list = []

    class Logged(cls, ClientSide):
        def finish(self, client, start, trained, state):
            log.append((client.id, start.vector.clone(), trained.vector.clone()))
            return super().finish(client, start, trained, state)

    return Logged(**options), log


def test_the_head_is_found_with_its_buffers():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
            self.body = nn.Linear(5, 4)

    layout = Layout.of(Plain())
    marked = {e.name for e in layout if bool(head_mask(layout)[e.slice].all())}
    assert marked == {e.name for e in layout if e.name.startswith("head.")}
    assert int(IN_HEAD.sum()) == HEAD


# FedPer.


@RUNNERS
def test_fedper_s_heads_resume_from_their_last_round(federation, runner):
    method, log = logged(FedPer)
    run = us.train(federation, method, runner=runner, **OPTIONS)
    by_client = {k: [entry for entry in log if entry[0] == k] for k in range(4)}
    for rounds in by_client.values():
        for (_, _, end), (_, start, _) in pairwise(rounds):
            assert torch.equal(start[IN_HEAD], end[IN_HEAD])
    starts = torch.stack([rounds[2][1] for rounds in by_client.values()])
    assert bool((starts[:, ~IN_HEAD] == starts[0, ~IN_HEAD]).all())
    assert not bool((starts[:, IN_HEAD] == starts[0, IN_HEAD]).any(1)[1:].all())
    assert torch.equal(vector_of(run)[IN_HEAD], START[IN_HEAD])


@pytest.mark.parametrize("method", ["fedper", "fedrep:head_epochs=1", "fedbabu"])
def test_the_body_alone_is_sent(federation, method):
    cost = us.train(federation, method, **OPTIONS).cost
    assert cost.parameters_up == cost.parameters_down == 3 * 4 * BODY
    assert cost.bytes_up == 4 * 3 * 4 * BODY


def test_heads_shared_on_upload_are_counted(federation):
    run = us.train(federation, "fedper:fallback=average", **OPTIONS)
    assert run.cost.parameters_up == 3 * 4 * (BODY + HEAD)
    assert run.cost.parameters_down == 4 * (BODY + HEAD) + 2 * 4 * BODY
    assert not torch.equal(vector_of(run)[IN_HEAD], START[IN_HEAD])


def test_with_one_client_fedper_is_fedavg(federation):
    alone = federation_of(federation.train.client(0), test=[federation.test.client(0)])
    plain, fedper = (us.train(alone, name, **OPTIONS) for name in ("fedavg", "fedper"))
    assert torch.equal(vector_of(plain)[~IN_HEAD], vector_of(fedper)[~IN_HEAD])
    assert fedper.last("personal", "loss") == plain.last("personal", "loss")


# FedRep.


@RUNNERS
def test_fedrep_trains_the_head_first_and_then_the_body(federation, runner):
    method, log = logged(FedRep, head_epochs=2)
    us.train(federation, method, runner=runner, **OPTIONS | {"rounds": 1})
    heads, bodies = log[:4], log[4:]
    if runner == "loop":  # client by client
        heads, bodies = log[::2], log[1::2]
    for (k, start, end), (same, after, final) in zip(
        sorted(heads, key=lambda e: e[0]), sorted(bodies, key=lambda e: e[0]), strict=True
    ):
        assert k == same
        assert torch.equal(start, START)
        assert torch.equal(end[~IN_HEAD], start[~IN_HEAD])
        assert not torch.equal(end[IN_HEAD], start[IN_HEAD])
        assert torch.equal(after, end)
        assert torch.equal(final[IN_HEAD], end[IN_HEAD])
        assert not torch.equal(final[~IN_HEAD], end[~IN_HEAD])


def test_fedrep_s_head_epochs_count_passes_over_the_samples(federation):
    """Full batches: one epoch is one step of gradient descent on the head."""
    method, log = logged(FedRep, head_epochs=3)
    us.train(federation, method, runner="loop", **OPTIONS | {"rounds": 1, "batch_size": 1000})
    module = make("mlp:hidden=6", (5,), 3)
    x, y = (torch.from_numpy(each) for each in federation.train.client(0))
    optimizer = torch.optim.SGD(module.head.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), y.long()).backward()
        optimizer.step()
    torch.testing.assert_close(log[0][2], flatten(module, LAYOUT))


def test_fedrep_s_default_is_that_of_the_authors_code():
    assert FedRep().head_epochs == 4  # of the head, per epoch of the body


def test_the_runners_agree(federation):
    for method in ("fedrep:head_epochs=2", "fedbabu:epochs=2"):
        one, other = (
            us.train(federation, method, runner=runner, **OPTIONS)
            for runner in ("loop", "vectorised")
        )
        torch.testing.assert_close(vector_of(one), vector_of(other), rtol=1e-4, atol=1e-5)
        assert one.last("personal", "loss") == pytest.approx(
            other.last("personal", "loss"), abs=1e-4
        )


# FedBABU.


@RUNNERS
@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9, "weight_decay": 0.1}])
def test_fedbabu_s_head_never_changes(federation, runner, settings):
    method, log = logged(FedBABU)
    run = us.train(federation, method, runner=runner, **OPTIONS, **settings)
    assert make_method(method).kept(LAYOUT) is None
    assert not any(run.states.values())
    for _, start, end in log:
        assert torch.equal(start[IN_HEAD], START[IN_HEAD])
        assert torch.equal(end[IN_HEAD], START[IN_HEAD])
    assert torch.equal(vector_of(run)[IN_HEAD], START[IN_HEAD])
    assert not torch.equal(vector_of(run)[~IN_HEAD], START[~IN_HEAD])


def test_fedbabu_is_fedavg_restricted_to_the_body(federation):
    class BodyAlone(Personalization):
        def freezes(self, layout):
            return head_mask(layout)

    fedbabu = us.train(federation, "fedbabu", **OPTIONS)
    plain = us.train(federation, BodyAlone(), **OPTIONS)
    # A mean of equal heads may round; FedBABU's head is exact.
    torch.testing.assert_close(vector_of(fedbabu), vector_of(plain))


@pytest.mark.parametrize("part", ["head", "all"])
def test_fedbabu_s_fine_tuning_by_hand(federation, part):
    """Full batches: fine-tuning is gradient descent from the global model."""
    run = us.train(
        federation, FedBABU(epochs=4, part=part), **OPTIONS | {"batch_size": 1000, "rounds": 2}
    )
    losses = []
    for k in range(4):
        module = make("mlp:hidden=6", (5,), 3)
        module.load_state_dict(run.model.state_dict())
        tuned = module.head if part == "head" else module
        losses.append(loss_after_steps(module, tuned, federation, k, steps=4))
    personal = run.client_tables[-1]
    assert personal["kind"] == "personal"
    assert personal["loss"] == pytest.approx(losses, rel=1e-4)
    assert run.last("local", "loss") != pytest.approx(run.last("personal", "loss"), rel=1e-3)


# Rejected networks.


class Headless(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(5, 3))

    def forward(self, x):
        return x @ self.weight


@pytest.mark.parametrize("method", ["fedper", "fedrep", "fedbabu"])
def test_a_network_without_a_head_is_rejected(federation, method):
    with pytest.raises(UnskewError, match="model: the method treats the head separately"):
        us.train(federation, method, **OPTIONS | {"model": Headless()})


def test_fedbabu_needs_a_body(federation):
    with pytest.raises(UnskewError, match="this network is only a head"):
        us.train(federation, "fedbabu", **OPTIONS | {"model": "logistic"})


@pytest.mark.parametrize("method", ["fedper", "fedrep:head_epochs=1"])
def test_a_head_alone_is_local_training(federation, method):
    run = us.train(federation, method, **OPTIONS | {"model": "logistic"})
    assert run.cost.bytes_up == run.cost.bytes_down == 0
    assert run.last("personal") > run.metrics[-1]["local"]["accuracy"]  # that of an untrained head
