"""All runners agree: processes and the loop bit for bit, vectorised within 1e-5."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import unskew as us
from marks import long_but
from toys import small_federation
from unskew.engine.cohort import ClientFailed
from unskew.errors import UnskewError
from unskew.methods import Finished
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten

pytestmark = pytest.mark.usefixtures("hooks_called_once")

CNN = nn.Sequential(
    nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)
)


def final(federation, method="fedavg", **options) -> torch.Tensor:
    options = {"model": "mlp:hidden=8", "rounds": 3, "batch_size": 8, "lr": 0.1} | options
    run = us.train(federation, method, **options)
    return flatten(run.model, FunctionalModel(run.model).layout)


def images(sizes=(20, 13, 9)):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, size=(sum(sizes), 1, 8, 8), dtype=np.uint8)
    y = rng.integers(0, 3, size=sum(sizes))
    return us.Federation.from_arrays(x, y, np.repeat(np.arange(len(sizes)), sizes), holdout=0.2)


@pytest.mark.parametrize(
    "method", long_but(("fedprox:mu=0.5",), ["fedavg", "mean", "fedprox:mu=0.5", "fedsmoo"])
)
@pytest.mark.parametrize(
    "local",
    [
        {"epochs": 2},
        {"steps": 7},
        {"epochs": 2, "momentum": 0.9, "weight_decay": 0.01},
        {"epochs": 2, "optimizer": "adam", "lr": 0.01},
        {"epochs": 1, "batch_size": 1000},
        {"epochs": 2, "momentum": 0.9, "weight_decay": 0.01, "clip": 0.3},
    ],
)
def test_vectorised_equals_the_loop(federation, method, local):
    loop = final(federation, method, runner="loop", **local)
    vectorised = final(federation, method, runner="vectorised", **local)
    torch.testing.assert_close(vectorised, loop, rtol=1e-5, atol=1e-5)


def test_one_worker_equals_two_bit_for_bit():
    federation = images()
    options = {"model": CNN, "runner": "processes", "epochs": 2}
    one = final(federation, workers=1, **options)
    two = final(federation, workers=2, **options)
    assert torch.equal(one, two)


def test_a_client_trains_the_same_alone_and_in_a_cohort(federation):
    """The sizes of other clients must not change a client's result."""
    small = small_federation(sizes=(7, 40), holdout=0)
    in_cohort = {}

    class Spy(us.ClientSide):
        def finish(self, client, start, trained, state):
            in_cohort[client.id] = trained.vector.clone()
            return Finished()

    options = {"model": "mlp:hidden=8", "rounds": 1, "batch_size": 4, "runner": "vectorised"}
    us.train(small, Spy(), **options)
    with_others = in_cohort[0]
    alone = us.Federation.from_arrays(*small.train.client(0), np.zeros(7, np.int64), classes=3)
    us.train(alone, Spy(), **options)
    torch.testing.assert_close(in_cohort[0], with_others, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("local", [{}, {"optimizer": "adam", "lr": 0.001}])
def test_batchnorm_vectorises_when_clients_are_equal(local):
    federation = images(sizes=(16, 16, 16))
    options = {"model": CNN, "batch_size": 5, **local}
    loop = final(federation, runner="loop", **options)
    vectorised = final(federation, runner="vectorised", **options)
    torch.testing.assert_close(vectorised, loop, rtol=1e-4, atol=1e-5)


def test_batchnorm_with_unequal_clients_is_rejected_when_vectorised():
    with pytest.raises(UnskewError, match="runner: 'vectorised'"):
        final(images(), model=CNN, runner="vectorised")


@pytest.mark.parametrize("runner", ["loop", "vectorised", "processes"])
def test_sample_weights_enter_the_loss(federation, runner):
    """Sample weights change the result, and by the same amount in every runner."""

    class Weighted(us.ClientSide):
        def prepare(self, client, start, payload, state):
            return replace(start, sample_weights=torch.where(client.y == 0, 2.0, 0.5))

    plain = final(federation, runner=runner, workers=2)
    weighted = final(federation, Weighted(), runner=runner, workers=2)
    reference = final(federation, Weighted(), runner="loop")
    assert not torch.allclose(plain, weighted)
    torch.testing.assert_close(weighted, reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("runner", ["loop", "vectorised", "processes"])
def test_training_accuracy_is_measured_after_training(federation, runner):
    seen = []

    class WithAccuracy(us.ServerSide):
        needs = frozenset({"train_accuracy"})

        def receive(self, server, uploads):
            seen.append(uploads.train_accuracy)
            return {}

    us.train(federation, WithAccuracy(), model="logistic", rounds=1, runner=runner, workers=2)
    reference = []

    class Direct(us.ClientSide):
        def finish(self, client, start, trained, state):
            net, layout = client.network, client.network.layout
            weights = trained.vector[: layout.trainable]
            predicted = net(weights, {}, client.x).argmax(1)
            reference.append(float((predicted == client.y).float().mean()))
            return Finished()

    us.train(federation, Direct(), model="logistic", rounds=1, runner="loop")
    assert seen[0].tolist() == pytest.approx(reference, abs=1e-6)


@pytest.mark.parametrize("runner", ["loop", "vectorised", "processes"])
def test_a_failing_hook_names_client_round_and_hook(federation, runner):
    class Broken(us.ClientSide):
        def finish(self, client, start, trained, state):
            if client.id == 2:
                raise KeyError("oops")
            return Finished()

    message = r"client 2 failed in round 1: finish of 'broken' raised KeyError: 'oops' \(.*, line"
    with pytest.raises(ClientFailed, match=message):
        us.train(federation, Broken(), model="logistic", rounds=1, runner=runner, workers=2)


@pytest.mark.parametrize("runner", ["loop", "vectorised", "processes"])
def test_state_stays_with_its_client(federation, runner):
    class Counting(us.ClientSide, us.ServerSide):
        def finish(self, client, start, trained, state):
            rounds = state.get("rounds", torch.zeros(())) + 1
            extras = {"rounds": rounds, "client": torch.tensor(client.id)}
            return Finished(extras=extras, state={"rounds": rounds})

        def receive(self, server, uploads):
            seen.append([int(n) for n in uploads.extras["rounds"]])
            assert [int(k) for k in uploads.extras["client"]] == list(uploads.clients)
            return {}

    seen = []
    us.train(federation, Counting(), model="logistic", rounds=3, runner=runner, workers=2)
    assert seen == [[1] * 4, [2] * 4, [3] * 4]


def test_a_frozen_coordinate_does_not_change(federation):
    class Frozen(us.Personalization):
        def freezes(self, layout):
            return torch.arange(layout.size) < 10

    before = us.train(federation, Frozen(), model="mlp:hidden=8", rounds=1, lr=1e-9)
    start = flatten(before.model, FunctionalModel(before.model).layout)
    for runner in ("loop", "vectorised"):
        end = final(federation, Frozen(), runner=runner)
        assert torch.equal(end[:10], start[:10])
        assert not torch.allclose(end[10:], start[10:])
