"""MOON: the contrast by hand, the first round, the projection, and FedAvg as a special case."""

import math

import pytest
import torch
from torch import nn

import unskew as us
from toys import vector_of
from unskew.errors import UnskewError
from unskew.methods import make_method
from unskew.methods.moon import MOON, directions
from unskew.models import make
from unskew.models.functional import Batch, ForwardPass, FunctionalModel

pytestmark = pytest.mark.usefixtures("hooks_called_once")

QUICK = {"model": "mlp:hidden=8", "rounds": 3, "batch_size": 8, "lr": 0.1}
RUNNERS = pytest.mark.parametrize("runner", ["loop", "vectorised"])


def objective(own, positive, negative, *, mu=2.0, temperature=0.5, strength=None):
    """The objective of one sample (1, 1), whose features are body weights times the sample."""
    body = nn.Linear(2, 2, bias=False)
    module = nn.Sequential(body, nn.Linear(2, 1))  # one class: cross-entropy is 0
    network = FunctionalModel(module)

    def vector(features):
        return torch.tensor([features[0], 0.0, 0.0, features[1], 0.0, 0.0, 0.0])

    weights = vector(own).requires_grad_()
    refs = {
        "moon/global": vector(positive),
        "moon/previous": vector(negative),
        "moon/strength": torch.tensor(mu if strength is None else strength),
    }
    batch = Batch(torch.ones(1, 2), torch.tensor([0]), torch.ones(1))
    method = make_method(MOON(mu=mu, temperature=temperature, projection=0))
    loss = method.objective(network, weights, {}, batch, refs)
    return loss.item(), torch.autograd.grad(loss, weights)[0]


def test_the_contrast_by_hand():
    """Cosine 1 with the global features, 0 with the previous: log(1 + e^{-1/t})."""
    loss, _ = objective((3.0, 0.0), (0.5, 0.0), (0.0, 7.0))
    assert loss == pytest.approx(2 * math.log(1 + math.exp(-2)), rel=1e-5)
    loss, _ = objective((3.0, 0.0), (0.0, 7.0), (0.5, 0.0))
    assert loss == pytest.approx(2 * math.log(1 + math.exp(2)), rel=1e-5)


def test_a_previous_model_like_the_global_one_gives_log_two_and_no_slope():
    loss, slope = objective((3.0, 1.0), (1.0, 2.0), (1.0, 2.0))
    assert loss == pytest.approx(2 * math.log(2), rel=1e-6)
    assert not slope.any()


def test_without_a_previous_model_there_is_no_term():
    loss, slope = objective((3.0, 1.0), (1.0, 2.0), (1.0, 2.0), strength=0.0)
    assert loss == 0
    assert not slope.any()


def test_features_of_zero_have_no_direction_and_a_bounded_slope():
    features = torch.zeros(1, 3, requires_grad=True)
    made = directions(ForwardPass(features, features))
    (slope,) = torch.autograd.grad(made.sum(), features)
    assert made.tolist() == [[0.0] * 3]
    assert float(slope.abs().max()) <= 1e4


@RUNNERS
def test_without_strength_it_is_fedavg_bit_for_bit(federation, runner):
    plain = us.train(federation, "fedavg", runner=runner, **QUICK)
    moon = us.train(federation, "moon:mu=0,projection=0", runner=runner, **QUICK)
    assert torch.equal(vector_of(plain), vector_of(moon))
    assert plain.cost == moon.cost


@RUNNERS
def test_without_strength_it_is_fedavg_of_the_network_with_a_projection(federation, runner):
    class Projected(us.Setup):
        def adapt(self, module, example):
            return MOON(projection=6).adapt(module, example)

    plain = us.train(federation, Projected(), runner=runner, **QUICK)
    moon = us.train(federation, "moon:mu=0,projection=6", runner=runner, **QUICK)
    assert torch.equal(vector_of(plain), vector_of(moon))


@RUNNERS
def test_the_first_round_is_fedavg_s_and_the_second_is_not(federation, runner):
    first = QUICK | {"rounds": 1, "runner": runner}
    names = ("fedavg", "moon:mu=5,projection=0")
    plain, moon = (us.train(federation, name, **first) for name in names)
    assert torch.equal(vector_of(plain), vector_of(moon))
    second = first | {"rounds": 2}
    plain, moon = (us.train(federation, name, **second) for name in names)
    assert not torch.allclose(vector_of(plain), vector_of(moon), atol=1e-4)


def test_the_negative_is_the_client_s_own_last_model(federation):
    left, found = {}, {}

    class Watched(MOON):
        def finish(self, client, start, trained, state):
            found.setdefault(client.id, []).append(start.refs["previous"])
            left.setdefault(client.id, []).append(trained.vector.clone())
            return super().finish(client, start, trained, state)

    us.train(federation, Watched(projection=0), **QUICK)
    for client, previous in found.items():
        assert torch.equal(previous[1], left[client][0])
        assert torch.equal(previous[2], left[client][1])


def test_the_projection_is_part_of_the_model_and_is_sent(federation):
    run = us.train(federation, "moon:projection=6", **QUICK)
    head = run.model.head
    assert (head.in_features, head.out_features) == (6, 3)
    numbers = (5 * 8 + 8) + (8 * 8 + 8) + (8 * 6 + 6) + (6 * 3 + 3)
    assert run.cost.parameters_up == run.cost.parameters_down == 3 * 4 * numbers
    assert run.model(torch.zeros(2, 5)).shape == (2, 3)


def test_a_projection_needs_a_linear_head_and_no_projection_a_linear_layer():
    with pytest.raises(UnskewError, match="model: moon needs a network that ends in a linear"):
        MOON().adapt(nn.Sequential(nn.Linear(5, 3), nn.Softmax(1)), torch.zeros(2, 5))
    with pytest.raises(UnskewError, match="model: moon needs a linear head"):
        MOON(projection=0).adapt(nn.Flatten(), torch.zeros(2, 5))
    module = make("mlp", (5,), 3)
    assert MOON(projection=0).adapt(module, torch.zeros(2, 5)) is module


def test_running_statistics_count_each_batch_once(federation):
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    options = QUICK | {"model": module, "rounds": 2, "steps": 3}
    run = us.train(federation, "moon:projection=0", **options)
    assert int(run.model[1].num_batches_tracked) == 6
