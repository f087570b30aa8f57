"""Worker processes trace steps whose shapes repeat; traced steps give the same bits."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import unskew as us
from marks import long_after
from unskew.engine.client import ClientContext, run_client
from unskew.engine.cohort import ClientTask
from unskew.engine.settings import Settings
from unskew.engine.trace_cache import _CALLS_BEFORE_TRACING, TraceCache
from unskew.methods import make_method
from unskew.models import make
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten

SIZE = 20


@pytest.fixture(scope="module")
def federation():
    rng = np.random.default_rng(0)
    x = rng.random((2 * SIZE, 1, 12, 12), dtype=np.float32)
    return us.Federation.from_arrays(x, rng.integers(0, 3, 2 * SIZE), [0] * SIZE + [1] * SIZE)


def context_for(federation, method: str, model: str) -> ClientContext:
    network = FunctionalModel(make(model, federation.shape, 3, seed=0))
    settings = Settings(steps=_CALLS_BEFORE_TRACING + 8, batch_size=10, lr=0.1)
    return ClientContext(make_method(method), network, federation, settings, torch.device("cpu"))


def vector_of(context: ClientContext, client: int) -> torch.Tensor:
    start = flatten(context.network.module, context.network.layout)
    return run_client(context, 0, ClientTask(client, {"model": start}, {}))[0].vector


@pytest.mark.parametrize("method", long_after(1, ["fedprox:mu=0.5", "fedavg", "fedntd", "fedsmoo"]))
def test_traced_steps_give_the_same_bits(federation, method):
    plain = context_for(federation, method, "lenet5")
    tracing = replace(plain, traces=TraceCache())
    for client in (0, 1):
        assert torch.equal(vector_of(plain, client), vector_of(tracing, client))
    assert tracing.traces is not None
    assert any(trace is not None for trace in tracing.traces._traces.values())


def test_networks_with_buffers_are_not_traced(federation):
    context = replace(context_for(federation, "fedavg", "lenet5:norm=batch"), traces=TraceCache())
    vector_of(context, 0)
    assert context.traces is not None
    assert not context.traces._traces


def test_networks_with_random_layers_are_not_traced(federation):
    """A trace would repeat the Dropout mask of the traced step."""
    dropout = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(200, 3)
    )
    plain = replace(context_for(federation, "fedavg", "lenet5"), network=FunctionalModel(dropout))
    tracing = replace(plain, traces=TraceCache())
    assert torch.equal(vector_of(plain, 0), vector_of(tracing, 0))
    assert tracing.traces is not None
    assert set(tracing.traces._traces.values()) == {None}
