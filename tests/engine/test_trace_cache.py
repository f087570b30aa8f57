"""Replayed steps give the very bits of steps that are taken anew."""

import pytest
import torch
from torch import nn

import unskew as us
from toys import small_federation
from unskew.engine import trace_cache
from unskew.engine.trace_cache import TraceCache
from unskew.methods.common.base import Finished, Start
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten

ACTIVATIONS = nn.Sequential(
    nn.Flatten(), nn.Linear(5, 6), nn.LayerNorm(6), nn.LeakyReLU(), nn.Linear(6, 6), nn.ELU(),
    nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 6), nn.SiLU(), nn.Linear(6, 6), nn.Tanh(),
    nn.Linear(6, 6), nn.Sigmoid(), nn.Linear(6, 6), nn.Softplus(), nn.Linear(6, 3),
)  # fmt: skip


class Weighted(us.Method):
    """Clients weigh their samples, each in its own way."""

    def prepare(self, client, payload, state):
        start = super().prepare(client, payload, state)
        return Start(start.vector, start.refs, torch.where(client.y == client.id % 3, 2.0, 0.5))


class Pulled(us.Method):
    """References of the clients' own; in the first round they are the shared model itself."""

    def prepare(self, client, payload, state):
        start = super().prepare(client, payload, state)
        before = state.get("before", payload["model"])
        return Start(start.vector, {"here": payload["model"], "before": before})

    def objective(self, network, weights, buffers, batch, refs):
        loss = super().objective(network, weights, buffers, batch, refs)
        return loss + 0.1 * (weights - 2 * refs["here"] + refs["before"]).square().sum()

    def finish(self, client, start, trained, state):
        return Finished(state={"before": trained.vector.clone()})


class Reading(us.Method):
    """An objective that turns a reference into a Python number: it cannot be recorded."""

    def prepare(self, client, payload, state):
        start = super().prepare(client, payload, state)
        return Start(start.vector, {"first": payload["model"][0]})

    def objective(self, network, weights, buffers, batch, refs):
        loss = super().objective(network, weights, buffers, batch, refs)
        return loss + 0.1 * refs["first"].item() * weights.square().sum()


def train(method="fedavg", sizes=(24, 24, 24), **options):
    federation = small_federation(sizes=sizes, holdout=0)
    options = {"model": "mlp:hidden=8", "rounds": 4, "batch_size": 8, "epochs": 2} | options
    run = us.train(federation, method, runner="vectorised", evaluate_every=0, **options)
    return flatten(run.model, FunctionalModel(run.model).layout), run


@pytest.fixture
def made(monkeypatch):
    """What recording led to, one entry an attempt."""
    attempts = []
    record = trace_cache._try_to_record

    def spy(function, tensors):
        attempts.append(record(function, tensors))
        return attempts[-1]

    monkeypatch.setattr(trace_cache, "_try_to_record", spy)
    return attempts


def without(monkeypatch):
    monkeypatch.setattr(trace_cache, "_MOST_RECORDINGS", 0)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fedavg", {}),
        ("fedprox:mu=0.5", {}),
        ("fedavg", {"model": "mlp:hidden=8-6,norm=layer"}),
        ("fedavg", {"model": ACTIVATIONS}),
        ("fedavg", {"sizes": (40, 25, 13, 7)}),
        ("fedprox:mu=0.5", {"sizes": (40, 25, 13, 7), "steps": 7, "epochs": None}),
        ("fedavg", {"optimizer": "adam", "lr": 0.01}),
        ("fedavg", {"momentum": 0.9, "weight_decay": 0.01}),
        (Weighted(), {"sizes": (40, 25, 13, 7)}),
        (Pulled(), {}),
    ],
)
def test_a_run_with_replays_is_the_run_without_bit_for_bit(monkeypatch, made, method, options):
    monkeypatch.setattr(trace_cache, "_WORTH_RECORDING", 2)
    vector, run = train(method, **options)
    assert made
    assert None not in made
    without(monkeypatch)
    plain_vector, plain_run = train(method, **options)
    assert torch.equal(vector, plain_vector)
    assert run.client_tables == plain_run.client_tables


def test_resuming_takes_steps_anew_that_were_replayed_before(tmp_path, monkeypatch, made):
    monkeypatch.setattr(trace_cache, "_WORTH_RECORDING", 5)
    whole, _ = train("fedprox:mu=0.5", rounds=7)
    train("fedprox:mu=0.5", rounds=4, out=tmp_path / "half")
    resumed, _ = train("fedprox:mu=0.5", rounds=7, out=tmp_path / "half", resume=True)
    assert len(made) == 3
    assert torch.equal(whole, resumed)


def test_an_objective_that_cannot_be_recorded_is_simply_called(monkeypatch, made):
    monkeypatch.setattr(trace_cache, "_WORTH_RECORDING", 2)
    vector, _ = train(Reading())
    assert made == [None]
    without(monkeypatch)
    assert torch.equal(vector, train(Reading())[0])


def test_networks_with_buffers_are_never_recorded(monkeypatch, made):
    monkeypatch.setattr(trace_cache, "_WORTH_RECORDING", 1)
    train(model=nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))
    assert made == []


def test_only_shapes_that_come_again_are_recorded(monkeypatch, made):
    monkeypatch.setattr(trace_cache, "_WORTH_RECORDING", 3)
    monkeypatch.setattr(trace_cache, "_MOST_RECORDINGS", 2)
    calls = []

    def double(x):
        calls.append(len(x))
        return (2 * x,)

    replayed = TraceCache().of("double", double)
    for _ in range(2):
        replayed(torch.ones(1))
    assert made == []
    for size in (2, 2, 2, 3, 3, 3, 4, 4, 4):
        assert replayed(torch.ones(size))[0].tolist() == [2.0] * size
    assert len(made) == 2
    calls.clear()
    for size in (1, 2, 3, 4):
        replayed(torch.ones(size))
    assert calls == [1, 4]


def test_functions_of_other_names_have_recordings_of_their_own(monkeypatch):
    monkeypatch.setattr(trace_cache, "_WORTH_RECORDING", 1)
    replays = TraceCache()
    double, triple = (
        replays.of("double", lambda x: (2 * x,)),
        replays.of("triple", lambda x: (3 * x,)),
    )
    for _ in range(3):
        assert double(torch.ones(1))[0].tolist() == [2.0]
        assert triple(torch.ones(1))[0].tolist() == [3.0]
