"""Traced steps give the same bits as steps that are not traced."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import unskew as us
from marks import long_after
from toys import small_federation
from unskew.engine import trace_cache
from unskew.engine.trace_cache import TraceCache
from unskew.methods import Aspect, Finished
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten

ACTIVATIONS = nn.Sequential(
    nn.Flatten(), nn.Linear(5, 6), nn.LayerNorm(6), nn.LeakyReLU(), nn.Linear(6, 6), nn.ELU(),
    nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 6), nn.SiLU(), nn.Linear(6, 6), nn.Tanh(),
    nn.Linear(6, 6), nn.Sigmoid(), nn.Linear(6, 6), nn.Softplus(), nn.Linear(6, 3),
)  # fmt: skip


class Weighted(us.ClientSide):
    """Clients weight their samples, each differently."""

    def prepare(self, client, start, payload, state):
        return replace(start, sample_weights=torch.where(client.y == client.id % 3, 2.0, 0.5))


class Proximal(us.ClientSide):
    """References per client; in the first round they are the shared model itself."""

    adds = frozenset({Aspect.LOCAL_LOSS})

    def prepare(self, client, start, payload, state):
        before = state.get("before", start.received)
        return replace(start, refs={"global": start.received, "before": before})

    def loss_term(self, step, refs):
        return 0.1 * (step.weights - 2 * refs["global"] + refs["before"]).square().sum()

    def finish(self, client, start, trained, state):
        return Finished(state={"before": trained.vector.clone()})


class ReadsValue(us.ClientSide):
    """A loss term that converts a reference to a Python number, which cannot be traced."""

    adds = frozenset({Aspect.LOCAL_LOSS})

    def prepare(self, client, start, payload, state):
        return replace(start, refs={"first": start.received[0]})

    def loss_term(self, step, refs):
        return 0.1 * refs["first"].item() * step.weights.square().sum()


def train(method="fedavg", sizes=(24, 24, 24), **options):
    federation = small_federation(sizes=sizes, holdout=0)
    options = {"model": "mlp:hidden=8", "rounds": 4, "batch_size": 8, "epochs": 2} | options
    run = us.train(federation, method, runner="vectorised", evaluate_every=0, **options)
    return flatten(run.model, FunctionalModel(run.model).layout), run


@pytest.fixture
def attempts(monkeypatch):
    """The results of tracing: one entry per attempt."""
    results = []
    try_to_trace = trace_cache._try_to_trace

    def spy(function, tensors):
        results.append(try_to_trace(function, tensors))
        return results[-1]

    monkeypatch.setattr(trace_cache, "_try_to_trace", spy)
    return results


def disable_tracing(monkeypatch):
    monkeypatch.setattr(trace_cache, "_MAX_TRACES", 0)


@pytest.mark.parametrize(
    ("method", "options"),
    long_after(
        4,
        [
            ("fedavg", {"model": ACTIVATIONS}),
            ("fedprox:mu=0.5", {"sizes": (40, 25, 13, 7), "steps": 7, "epochs": None}),
            ("fedavg", {"optimizer": "adam", "lr": 0.01}),
            (Weighted(), {"sizes": (40, 25, 13, 7)}),
            ("fedavg", {}),
            ("fedprox:mu=0.5", {}),
            ("fedavg", {"model": "mlp:hidden=8-6,norm=layer"}),
            ("fedavg", {"sizes": (40, 25, 13, 7)}),
            ("fedavg", {"momentum": 0.9, "weight_decay": 0.01}),
            ("fedprox:mu=0.5", {"clip": 0.3}),
            (Proximal(), {}),
        ],
    ),
)
def test_a_traced_run_equals_an_untraced_run_bit_for_bit(monkeypatch, attempts, method, options):
    monkeypatch.setattr(trace_cache, "_CALLS_BEFORE_TRACING", 2)
    vector, run = train(method, **options)
    assert attempts
    assert None not in attempts
    disable_tracing(monkeypatch)
    plain_vector, plain_run = train(method, **options)
    assert torch.equal(vector, plain_vector)
    assert run.client_tables == plain_run.client_tables


def test_a_resumed_run_traces_from_the_start_and_gives_the_same_bits(
    tmp_path, monkeypatch, attempts
):
    monkeypatch.setattr(trace_cache, "_CALLS_BEFORE_TRACING", 5)
    whole, _ = train("fedprox:mu=0.5", rounds=7)
    train("fedprox:mu=0.5", rounds=4, out=tmp_path / "half")
    resumed, _ = train("fedprox:mu=0.5", rounds=7, out=tmp_path / "half", resume=True)
    assert len(attempts) == 3
    assert torch.equal(whole, resumed)


def test_an_objective_that_cannot_be_traced_is_called(monkeypatch, attempts):
    monkeypatch.setattr(trace_cache, "_CALLS_BEFORE_TRACING", 2)
    vector, _ = train(ReadsValue())
    assert attempts == [None]
    disable_tracing(monkeypatch)
    assert torch.equal(vector, train(ReadsValue())[0])


def test_networks_with_buffers_are_never_traced(monkeypatch, attempts):
    monkeypatch.setattr(trace_cache, "_CALLS_BEFORE_TRACING", 1)
    train(model=nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))
    assert attempts == []


def test_only_shapes_that_repeat_are_traced(monkeypatch, attempts):
    monkeypatch.setattr(trace_cache, "_CALLS_BEFORE_TRACING", 3)
    monkeypatch.setattr(trace_cache, "_MAX_TRACES", 2)
    calls = []

    def double(x):
        calls.append(len(x))
        return (2 * x,)

    traced = TraceCache().of("double", double)
    for _ in range(2):
        traced(torch.ones(1))
    assert attempts == []
    for size in (2, 2, 2, 3, 3, 3, 4, 4, 4):
        assert traced(torch.ones(size))[0].tolist() == [2.0] * size
    assert len(attempts) == 2
    calls.clear()
    for size in (1, 2, 3, 4):
        traced(torch.ones(size))
    assert calls == [1, 4]


def test_functions_of_different_names_have_different_traces(monkeypatch):
    monkeypatch.setattr(trace_cache, "_CALLS_BEFORE_TRACING", 1)
    traces = TraceCache()
    double = traces.of("double", lambda x: (2 * x,))
    triple = traces.of("triple", lambda x: (3 * x,))
    for _ in range(3):
        assert double(torch.ones(1))[0].tolist() == [2.0]
        assert triple(torch.ones(1))[0].tolist() == [3.0]


def test_calls_with_many_weights_are_not_traced(monkeypatch):
    traced = []
    monkeypatch.setattr(trace_cache, "_CALLS_BEFORE_TRACING", 1)
    monkeypatch.setattr(trace_cache, "_MAX_NUMBERS", 10)
    monkeypatch.setattr(trace_cache, "Trace", lambda function, tensors: traced.append(tensors))
    call = TraceCache().of("double", lambda weights: (2 * weights,))
    assert call(torch.ones(11))[0].sum() == 22
    assert not traced
    call(torch.ones(10))
    assert len(traced) == 1
