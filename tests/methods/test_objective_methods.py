"""All methods that change the local objective work on any data, network and runner."""

import pytest
import torch
from torch import nn

import unskew as us
from toys import federation_of, small_federation
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten

SPECS = [
    "scaffold",
    "feddyn:alpha=0.1",
    "fednova",
    "fedntd",
    "moon:projection=16",
    "fedrod",
    "fedrod:head=hypernetwork",
    "fedgen:hidden=8,generator_steps=3",
]
EACH = pytest.mark.parametrize("method", SPECS)
QUICK = {"model": "mlp:hidden=8", "rounds": 3, "batch_size": 8, "lr": 0.1, "evaluate_every": 3}
NORMED = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


class Plain(nn.Module):
    """A custom network, with no module called body or head."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def train_quickly(federation, method, **options):
    run = us.train(federation, method, **QUICK | options)
    vector = flatten(run.model, FunctionalModel(run.model).layout)
    assert bool(torch.isfinite(vector).all())
    return run, vector


@EACH
@pytest.mark.parametrize("local", [{"epochs": 2}, {"steps": 3, "momentum": 0.9, "cohort": 2}])
def test_vectorised_equals_the_loop(federation, method, local):
    _, loop = train_quickly(federation, method, runner="loop", **local)
    _, vectorised = train_quickly(federation, method, runner="vectorised", **local)
    torch.testing.assert_close(vectorised, loop, rtol=2e-4, atol=3e-5)


@EACH
def test_the_pool_equals_the_loop_bit_for_bit(federation, method):
    options = {"model": NORMED, "rounds": 2}
    _, loop = train_quickly(federation, method, runner="loop", **options)
    _, processes = train_quickly(federation, method, runner="processes", workers=2, **options)
    assert torch.equal(loop, processes)


@EACH
def test_a_run_resumes_bit_for_bit(federation, method, tmp_path):
    options = {"cohort": 2, "runner": "loop"}
    _, whole = train_quickly(federation, method, rounds=4, **options)
    train_quickly(federation, method, rounds=2, out=tmp_path / "half", **options)
    _, resumed = train_quickly(
        federation, method, rounds=4, out=tmp_path / "half", resume=True, **options
    )
    assert torch.equal(whole, resumed)


@EACH
@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_tiny_federations(method, runner):
    x, y = small_federation().train.client(0)
    one_sample, one_class = (x[:1], y[:1]), (x[y == 1], y[y == 1])
    train_quickly(federation_of((x, y), one_sample), method, runner=runner)
    train_quickly(federation_of(one_class, (x, y), one_sample), method, runner=runner, cohort=1)


@EACH
def test_custom_networks(federation, method):
    run, _ = train_quickly(federation, method, model=Plain())
    assert torch.isfinite(run.model(torch.zeros(2, 5))).all()
    train_quickly(federation, method, model=nn.Linear(5, 3))


@EACH
def test_two_classes(method):
    train_quickly(small_federation(sizes=(9, 12), classes=2), method)


GOLDEN = [
    ("scaffold", 0.852),
    ("feddyn:alpha=0.1", 0.925),
    ("fednova", 0.864),
    ("fedntd", 0.802),
    ("moon", 0.671),
    ("fedrod", 0.799),
    ("fedgen:alpha=1,beta=1,generator_steps=10", 0.877),
]


@pytest.mark.long
@pytest.mark.parametrize(("method", "accuracy"), GOLDEN)
def test_accuracies_on_digits_are_unchanged(digits, method, accuracy):
    run = us.train(
        digits, method, model="mlp:hidden=32", rounds=12, epochs=2, lr=0.1, evaluate_every=12
    )
    assert run.accuracy == pytest.approx(accuracy, abs=0.04)


@pytest.fixture(scope="session")
def digits():
    return us.load("digits", clients=8, skew="dirichlet:alpha=0.3", seed=1)


def test_every_objective_method_is_tested():
    tried = {spec.partition(":")[0] for spec in SPECS}
    assert tried == {spec.partition(":")[0] for spec, _ in GOLDEN}
