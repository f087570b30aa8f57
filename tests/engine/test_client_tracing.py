"""In the pool, steps that come again and again are replayed: to the same bits as when called."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import unskew as us
from unskew.engine.client import ClientContext, run_client
from unskew.engine.cohort import Task
from unskew.engine.settings import Settings
from unskew.engine.trace_cache import _WORTH_RECORDING, TraceCache
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


def workshop(federation, method: str, model: str) -> ClientContext:
    network = FunctionalModel(make(model, federation.shape, 3, seed=0))
    settings = Settings(steps=_WORTH_RECORDING + 8, batch_size=10, lr=0.1)
    return ClientContext(make_method(method), network, federation, settings, torch.device("cpu"))


def vector_of(context: ClientContext, client: int) -> torch.Tensor:
    start = flatten(context.network.module, context.network.layout)
    return run_client(context, 0, Task(client, {"model": start}, {}))[0].vector


@pytest.mark.parametrize("method", ["fedavg", "fedprox:mu=0.5", "fedntd"])
def test_replayed_steps_give_the_same_bits(federation, method):
    plain = workshop(federation, method, "lenet5")
    replaying = replace(plain, replays=TraceCache())
    for client in (0, 1):
        assert torch.equal(vector_of(plain, client), vector_of(replaying, client))
    assert replaying.replays is not None
    assert any(recording is not None for recording in replaying.replays._recordings.values())


def test_networks_whose_buffers_change_are_always_called(federation):
    context = replace(workshop(federation, "fedavg", "lenet5:norm=batch"), replays=TraceCache())
    vector_of(context, 0)
    assert context.replays is not None
    assert not context.replays._recordings


def test_networks_that_draw_are_always_called(federation):
    """A recording would repeat the Dropout of the step it was made in."""
    dropout = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(200, 3)
    )
    plain = replace(workshop(federation, "fedavg", "lenet5"), network=FunctionalModel(dropout))
    replaying = replace(plain, replays=TraceCache())
    assert torch.equal(vector_of(plain, 0), vector_of(replaying, 0))
    assert replaying.replays is not None
    assert set(replaying.replays._recordings.values()) == {None}
