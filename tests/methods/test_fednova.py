"""FedNova: equal work is FedAvg, unequal work is normalised by the effective step."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import unskew as us
from toys import small_federation, vector_of
from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Server
from unskew.engine.optimizer import SGD
from unskew.methods import make_method
from unskew.methods.fednova import FedNova
from unskew.models.layout import Layout

QUICK = {"model": "logistic", "batch_size": 8, "lr": 0.1}


def combine(stack, effective_step, samples, previous, layout=None):
    uploads = Uploads.of(
        torch.tensor(stack),
        samples=samples,
        previous=torch.tensor(previous),
        layout=layout,
        extras={"fednova/effective_step": [torch.tensor(each) for each in effective_step]},
    )
    return make_method(FedNova()).aggregate(Server(torch.tensor(previous)), uploads)[0].vector


def test_by_hand():
    """p = 1/4, 3/4; steps 1, 3; ways 1, 6: tau = 2.5, and 1 + 2.5 (1/4 1/1 + 3/4 6/3)."""
    vector = combine([[2.0], [7.0]], [1.0, 3.0], [10, 30], [1.0])
    assert vector.tolist() == [1 + 2.5 * (0.25 + 1.5)]


@given(st.floats(0.01, 100), st.lists(st.floats(0.1, 10), min_size=2, max_size=5))
def test_the_unit_of_the_effective_step_does_not_matter(unit, effective_step):
    """So steps, or steps times the learning rate, give the same result."""
    stack = [[float(k), 1.0 - k] for k in range(len(effective_step))]
    samples = list(range(1, len(effective_step) + 1))
    vectors = [
        combine(stack, [scale * each for each in effective_step], samples, [0.5, 0.5])
        for scale in (1.0, unit)
    ]
    torch.testing.assert_close(vectors[0], vectors[1], rtol=1e-4, atol=1e-4)


@given(st.integers(0, 60), st.floats(0, 0.95))
def test_the_effective_step_with_momentum_is_the_paper_s_formula(steps, momentum):
    power = momentum**steps
    paper = (steps - momentum * (1 - power) / (1 - momentum)) / (1 - momentum)
    assert SGD(0.3, momentum, 0.0).effective_step(steps, 0.0) == pytest.approx(
        0.3 * paper, abs=1e-9
    )


@given(st.integers(0, 60), st.floats(0, 3))
def test_the_effective_step_with_a_proximal_term_is_the_paper_s_recursion(steps, mu):
    a = 0.0
    for _ in range(steps):
        a = (1 - 0.1 * mu) * a + 1
    assert SGD(0.1, 0.0, 0.0).effective_step(steps, mu) == pytest.approx(0.1 * a)


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
@pytest.mark.parametrize("local", [{"steps": 4}, {"steps": 3, "momentum": 0.9}])
def test_equal_work_is_fedavg_bit_for_bit(federation, runner, local):
    options = QUICK | {"rounds": 3, "runner": runner} | local
    runs = [us.train(federation, name, **options) for name in ("fedavg", "fednova")]
    assert torch.equal(vector_of(runs[0]), vector_of(runs[1]))


def test_equal_work_with_a_proximal_term_is_fedprox_bit_for_bit(federation):
    """The authors' code moves further, by the ratio of the steps to their effective number."""
    options = QUICK | {"rounds": 3, "steps": 4}
    names = ("fedprox:mu=0.5", "fedprox:mu=0.5+fednova")
    fedprox, both = (vector_of(us.train(federation, name, **options)) for name in names)
    assert torch.equal(fedprox, both)


def test_unequal_work_differs_from_fedavg(federation):
    options = QUICK | {"rounds": 2, "epochs": 2}
    runs = [us.train(federation, name, **options) for name in ("fedavg", "fednova")]
    assert not torch.allclose(vector_of(runs[0]), vector_of(runs[1]), atol=1e-3)
    table = next(table for table in runs[1].client_tables if table["kind"] == "round")
    steps = torch.tensor(table["steps"]).double()
    effective_step = torch.tensor(table["diagnostics"]["effective_step"]).double()
    assert len(set(table["steps"])) > 1
    torch.testing.assert_close(effective_step, 0.1 * steps, rtol=1e-6, atol=0)


def test_statistics_are_averaged_and_counters_take_the_largest():
    layout = Layout.of(nn.BatchNorm1d(1))
    stack = [[1.0, 1.0, 4.0, 8.0, 3.0], [3.0, 1.0, 8.0, 4.0, 5.0]]
    vector = combine(stack, [1.0, 2.0], [10, 30], [1.0, 1.0, 0.0, 0.0, 0.0], layout)
    assert vector[2:].tolist() == [7.0, 5.0, 5.0]
    assert vector[0].item() == 1 + (0.25 + 0.75 * 2) * 0.75 * 2 / 2


def test_adam_s_work_is_its_number_of_steps():
    federation = small_federation(sizes=(33, 9), holdout=0)
    run = us.train(federation, "fednova", optimizer="adam", rounds=1, **QUICK)
    assert run.client_tables[0]["diagnostics"]["effective_step"] == [5.0, 2.0]


def test_it_sends_one_number_more(federation):
    runs = [us.train(federation, name, rounds=3, **QUICK) for name in ("fedavg", "fednova")]
    assert runs[1].cost.parameters_up - runs[0].cost.parameters_up == 3 * 4
    assert runs[1].cost.bytes_up - runs[0].cost.bytes_up == 3 * 4 * 4
    assert runs[1].cost.parameters_down == runs[0].cost.parameters_down
