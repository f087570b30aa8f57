"""FedNTD: the divergence by hand, the true class, and FedAvg as a special case."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import unskew as us
from unskew.methods import make_method
from unskew.methods.fedntd import FedNTD, not_true_divergence
from unskew.models.functional import Batch, FunctionalModel
from unskew.models.layout import flatten

QUICK = {"model": "mlp:hidden=8", "rounds": 3, "batch_size": 8, "lr": 0.1}
LOGITS = st.lists(st.floats(-8, 8), min_size=3, max_size=3)


def test_the_divergence_by_hand():
    """Class 0 is true. For the others the teacher predicts 3:1, the student 1:1."""
    teacher = torch.tensor([[9.0, math.log(3), 0.0]])
    own = torch.tensor([[-5.0, 2.0, 2.0]])
    expected = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    divergence = not_true_divergence(teacher, own, torch.tensor([0]), 1.0)
    assert divergence.tolist() == pytest.approx([expected], abs=1e-6)


def test_a_high_temperature_makes_both_more_uniform():
    teacher, own = torch.tensor([[0.0, 4.0, 0.0]]), torch.tensor([[0.0, 0.0, 4.0]])
    sharp, blurred = (not_true_divergence(teacher, own, torch.tensor([0]), t) for t in (1.0, 4.0))
    assert blurred.item() == pytest.approx(2 * 0.2310585786, abs=1e-5)  # 2 (sigmoid(1) - 1/2)
    assert sharp > blurred


@given(LOGITS, LOGITS, st.integers(0, 2), st.floats(0.5, 5))
def test_the_true_class_has_no_effect_and_no_gradient(teacher, own, y, temperature):
    logits = torch.tensor([own], requires_grad=True)
    label = torch.tensor([y])
    divergence = not_true_divergence(torch.tensor([teacher]), logits, label, temperature)
    (slope,) = torch.autograd.grad(divergence.sum(), logits)
    assert divergence.item() >= -1e-6
    assert slope[0, y] == 0
    assert slope.sum().item() == pytest.approx(0, abs=1e-5)
    same = not_true_divergence(logits, logits, label, temperature)
    assert same.item() == 0


@pytest.mark.parametrize("classes", [1, 2])
def test_where_there_is_no_choice_among_the_others_it_is_zero(classes):
    own = torch.randn(4, classes, requires_grad=True)
    divergence = not_true_divergence(
        torch.randn(4, classes), own, torch.zeros(4, dtype=torch.int64), 1.0
    )
    (slope,) = torch.autograd.grad(divergence.sum(), own)
    assert divergence.tolist() == [0.0] * 4
    assert not slope.any()


def test_the_objective_adds_it_by_sample_scale():
    network = FunctionalModel(nn.Linear(2, 3))
    weights, teacher = torch.randn(9, requires_grad=True), torch.randn(9)
    batch = Batch(torch.randn(3, 2), torch.tensor([0, 1, 2]), torch.tensor([0.5, 0.5, 0.0]))
    plain = us.Method().objective(network, weights, {}, batch, {})
    method = make_method(FedNTD(beta=3, temperature=2))
    whole = method.objective(network, weights, {}, batch, {"fedntd/teacher": teacher})
    own, teacher = network(weights, {}, batch.x), network(teacher, {}, batch.x)
    each = not_true_divergence(teacher, own, batch.y, 2.0)
    assert (whole - plain).item() == pytest.approx(3 * 4 * (each[0] + each[1]).item() / 2, rel=1e-4)


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_without_strength_it_is_fedavg_bit_for_bit(federation, runner):
    runs = [
        us.train(federation, name, runner=runner, **QUICK) for name in ("fedavg", "fedntd:beta=0")
    ]
    first, second = (flatten(run.model, FunctionalModel(run.model).layout) for run in runs)
    assert torch.equal(first, second)
    assert runs[0].cost == runs[1].cost


def test_the_first_step_is_fedavg_s(federation):
    """At the global model both agree, and the divergence has no gradient."""
    options = QUICK | {"rounds": 1, "steps": 1}
    runs = [us.train(federation, name, **options) for name in ("fedavg", "fedntd:beta=100")]
    first, second = (flatten(run.model, FunctionalModel(run.model).layout) for run in runs)
    torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6)


def test_running_statistics_count_each_batch_once(federation):
    """The teacher uses its own statistics and changes none."""
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    run = us.train(federation, "fedntd", **QUICK | {"model": module, "rounds": 1, "steps": 3})
    assert int(run.model[1].num_batches_tracked) == 3
