"""FedAvg, Mean and FedProx: identities that a person can check."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import unskew as us
from toys import federation_of, small_federation, vector_of
from unskew.composition.parts import ClientSide, ServerSide
from unskew.methods import make_method
from unskew.methods.fedprox import FedProx
from unskew.models import make
from unskew.models.functional import Batch, FunctionalModel
from unskew.models.layout import flatten

pytestmark = pytest.mark.usefixtures("hooks_called_once")

RUNNERS = pytest.mark.parametrize("runner", ["loop", "vectorised"])
FULL_BATCH = {"model": "logistic", "batch_size": 1000, "lr": 0.3}


def sgd(module, x, y, *, lr, steps) -> torch.Tensor:
    """Full-batch gradient descent by torch itself."""
    optimizer = torch.optim.SGD(module.parameters(), lr)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
    return flatten(module, FunctionalModel(module).layout)


def pooled(federation) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(federation.train.x), torch.from_numpy(federation.train.y).long()


@RUNNERS
def test_fedavg_with_one_full_batch_step_is_gradient_descent_on_the_pooled_loss(federation, runner):
    run = us.train(federation, "fedavg", rounds=5, epochs=1, runner=runner, **FULL_BATCH)
    expected = sgd(make("logistic", (5,), 3), *pooled(federation), lr=0.3, steps=5)
    torch.testing.assert_close(vector_of(run), expected, rtol=1e-5, atol=1e-6)


@RUNNERS
@pytest.mark.parametrize("method", ["fedavg", "mean"])
def test_clients_with_the_same_data_equal_local_training(runner, method):
    x, y = small_federation().train.client(0)
    run = us.train(
        federation_of((x, y), (x, y), (x, y)), method,
        rounds=2, epochs=4, runner=runner, **FULL_BATCH,
    )  # fmt: skip
    expected = sgd(
        make("logistic", (5,), 3), torch.from_numpy(x), torch.from_numpy(y).long(), lr=0.3, steps=8
    )
    torch.testing.assert_close(vector_of(run), expected, rtol=1e-5, atol=1e-6)


def test_one_client_is_local_training(federation):
    x, y = federation.train.client(0)
    run = us.train(federation_of((x, y)), rounds=3, epochs=2, **FULL_BATCH)
    expected = sgd(
        make("logistic", (5,), 3), torch.from_numpy(x), torch.from_numpy(y).long(), lr=0.3, steps=6
    )
    torch.testing.assert_close(vector_of(run), expected, rtol=1e-5, atol=1e-6)


def test_mean_is_fedavg_for_equal_sizes_and_differs_for_unequal(federation):
    equal = small_federation(sizes=(20, 20, 20))
    options = {"rounds": 2, "epochs": 2, "model": "logistic"}
    runs = [us.train(equal, method, **options) for method in ("fedavg", "mean")]
    assert torch.equal(vector_of(runs[0]), vector_of(runs[1]))
    runs = [us.train(federation, method, **options) for method in ("fedavg", "mean")]
    assert not torch.allclose(vector_of(runs[0]), vector_of(runs[1]), atol=1e-3)
    sizes = federation.train.sizes
    np.testing.assert_allclose(runs[0].weights, np.tile(sizes / sizes.sum(), (2, 1)))
    np.testing.assert_allclose(runs[1].weights, 0.25)


@RUNNERS
def test_fedprox_without_strength_is_fedavg_bit_for_bit(federation, runner):
    options = {"rounds": 3, "epochs": 2, "model": "mlp:hidden=8", "runner": runner}
    plain = us.train(federation, "fedavg", **options)
    prox = us.train(federation, "fedprox:mu=0", **options)
    assert torch.equal(vector_of(plain), vector_of(prox))


@RUNNERS
def test_fedprox_s_first_local_step_is_fedavg_s(federation, runner):
    """At the global model the proximal term has no gradient."""
    options = {"rounds": 1, "steps": 1, "model": "logistic", "runner": runner}
    plain = us.train(federation, "fedavg", **options)
    prox = us.train(federation, "fedprox:mu=100", **options)
    torch.testing.assert_close(vector_of(plain), vector_of(prox))
    second = options | {"steps": 2}
    assert not torch.allclose(
        vector_of(us.train(federation, "fedavg", **second)),
        vector_of(us.train(federation, "fedprox:mu=1", **second)),
        atol=1e-4,
    )


def test_fedprox_s_second_step_by_hand():
    """One class, so the loss is flat: only the proximal term has a gradient."""
    network = FunctionalModel(nn.Linear(1, 1))
    method = make_method(FedProx(mu=0.5))
    weights = torch.tensor([3.0, -1.0], requires_grad=True)
    batch = Batch(torch.ones(1, 1), torch.tensor([0]), torch.ones(1))
    refs = {"fedprox/center": torch.tensor([1.0, 0.0])}
    loss = method.objective(network, weights, {}, batch, refs)
    (gradient,) = torch.autograd.grad(loss, weights)
    assert loss.item() == pytest.approx(0.25 * (4 + 1))  # one class: cross-entropy is 0
    assert gradient.tolist() == [1.0, -0.5]


def test_a_stronger_proximal_term_keeps_clients_nearer(federation):
    distances = {}

    class Measured(FedProx, ServerSide):
        def receive(self, server, uploads):
            distances[self.mu] = (uploads.stack - uploads.previous).norm(dim=1)
            return super().receive(server, uploads)

    for mu in (0.0, 0.3, 1.0, 3.0):
        us.train(federation, Measured(mu=mu), rounds=1, epochs=10, model="logistic", lr=0.1)
    by_strength = torch.stack([distances[mu] for mu in sorted(distances)])
    assert bool((by_strength[1:] < by_strength[:-1]).all())


# The policy for buffers.

NORMED = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
BUFFERED = {"model": NORMED, "rounds": 3, "batch_size": 8, "runner": "loop"}


class Watched(ClientSide):
    """Records the start and the end of every client's training."""

    def finish(self, client, start, trained, state):
        LOG.append((client.id, start.vector.clone(), trained.vector.clone()))
        return super().finish(client, start, trained, state)


LOG: list = []


def watched(federation, **options) -> list:
    LOG.clear()
    us.train(federation, Watched(**options), **BUFFERED)
    return [LOG[4 * round_ : 4 * round_ + 4] for round_ in range(3)]


def test_local_buffers_stay_on_their_client(federation):
    statistics = slice(FunctionalModel(NORMED).layout.trainable, None)
    first, second, _ = watched(federation, buffers="local")
    for (k, _, end), (same, start, _) in zip(first, second, strict=True):
        assert k == same
        assert torch.equal(start[statistics], end[statistics])
    ends = [end[statistics] for _, _, end in first]
    assert not torch.equal(ends[0], ends[1])


def test_averaged_buffers_are_the_same_for_all(federation):
    statistics = slice(FunctionalModel(NORMED).layout.trainable, None)
    first, second, _ = watched(federation, buffers="average")
    starts = torch.stack([start[statistics] for _, start, _ in second])
    assert bool((starts == starts[0]).all())
    weights = torch.from_numpy(federation.train.sizes / federation.train.sizes.sum())
    ends = torch.stack([end[statistics] for _, _, end in first]).double()
    expected = (ends * weights[:, None]).sum(0)
    torch.testing.assert_close(starts[0, :-1].double(), expected[:-1], rtol=1e-5, atol=1e-6)
    assert starts[0, -1] == ends[:, -1].max() == 4  # 32 samples are four batches of 8


def test_parameters_are_averaged_under_either_policy(federation):
    trainable = slice(FunctionalModel(NORMED).layout.trainable)
    for policy in ("local", "average"):
        _, second, _ = watched(federation, buffers=policy)
        starts = torch.stack([start[trainable] for _, start, _ in second])
        assert bool((starts == starts[0]).all())


def test_local_buffers_are_sent_only_to_new_clients(federation):
    average = us.train(federation, "fedavg", **BUFFERED).cost
    local = us.train(federation, "fedavg:buffers=local", **BUFFERED).cost
    assert (local.parameters_up, local.bytes_up) == (average.parameters_up, average.bytes_up)
    messages = 2 * 4  # the rounds after the first x clients
    assert average.parameters_down - local.parameters_down == messages * (4 + 4 + 1)
    assert average.bytes_down - local.bytes_down == messages * (4 * 4 + 4 * 4 + 8)


def test_the_global_model_has_the_average_of_local_buffers(federation):
    run = us.train(federation, "fedavg:buffers=local", **BUFFERED)
    assert run.model[1].num_batches_tracked == 3 * 4  # of the client with four batches
    assert not torch.allclose(run.model[1].running_var, torch.ones(4), atol=1e-2)


def test_personal_models_have_their_own_buffers(federation):
    local = us.train(federation, "fedavg:buffers=local", **BUFFERED)
    assert local.last("personal", "loss") != local.last("local", "loss")
    average = us.train(federation, "fedavg", **BUFFERED)
    assert average.last("personal", "loss") == average.last("local", "loss")


def test_without_buffers_the_policy_changes_nothing(federation):
    options = {"model": "logistic", "rounds": 2}
    average = us.train(federation, "fedavg", **options)
    local = us.train(federation, "fedavg:buffers=local", **options)
    assert torch.equal(vector_of(average), vector_of(local))
    assert average.cost == local.cost
