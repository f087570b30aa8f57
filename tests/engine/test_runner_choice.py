import time

import pytest
import torch
from torch import nn

from unskew.data.federation import Federation
from unskew.engine.client import ClientContext
from unskew.engine.loop import Loop
from unskew.engine.pool import ProcessPool
from unskew.engine.runners import (
    choose_device,
    make_runner,
    resolve_runner,
    suits_vectorising,
)
from unskew.engine.settings import Settings
from unskew.engine.vectorised import Vectorised
from unskew.errors import UnskewError
from unskew.methods import Method
from unskew.models import make
from unskew.models.functional import FunctionalModel

CPU = torch.device("cpu")


def chosen(module: nn.Module, shape: tuple[int, ...] = (4,), **options) -> str:
    return resolve_runner(FunctionalModel(module), Settings(**options), CPU, torch.zeros(2, *shape))


def suits(module: nn.Module, features: int = 4) -> bool:
    return suits_vectorising(FunctionalModel(module), torch.zeros(2, features), CPU)


def test_small_dense_networks_are_vectorised():
    assert chosen(make("mlp", (1, 8, 8), 10), (1, 8, 8)) == "vectorised"
    assert chosen(make("logistic", (5,), 3), (5,)) == "vectorised"
    assert chosen(nn.Linear(4, 2)) == "vectorised"


def test_convolutions_go_to_the_pool():
    assert chosen(make("lenet5", (1, 28, 28), 10), (1, 28, 28)) == "pool"


@pytest.mark.parametrize(
    "layer", [nn.Dropout(0.5), nn.BatchNorm1d(4), nn.LSTM(4, 4), nn.Embedding(4, 4)]
)
def test_layers_that_are_random_or_couple_samples_or_batch_badly_are_not_vectorised(layer):
    assert not suits(nn.Sequential(nn.Linear(4, 4), layer))


def test_large_networks_are_not_vectorised():
    assert suits(nn.Linear(999, 1000), 999)
    assert not suits(nn.Linear(1000, 1000), 1000)


def test_code_that_vmap_cannot_run_is_not_vectorised():
    class WithDropout(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(torch.nn.functional.dropout(x, 0.5))

    assert chosen(WithDropout()) == "pool"


def test_a_requested_runner_is_used():
    for runner in ("loop", "pool", "vectorised"):
        assert chosen(make("mlp", (4,), 2), runner=runner) == runner


def test_networks_that_are_not_vectorised_use_the_loop_on_an_accelerator():
    network = FunctionalModel(make("lenet5", (1, 28, 28), 10))
    images = torch.zeros(2, 1, 28, 28)
    assert resolve_runner(network, Settings(), torch.device("cuda"), images) == "loop"
    with pytest.raises(UnskewError, match="runner: 'pool' works on the cpu"):
        resolve_runner(network, Settings(runner="pool"), torch.device("cuda"), images)


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_available_is_rejected(device, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    message = f"device: '{device}' is not available here; use 'cpu' or 'auto'"
    with pytest.raises(UnskewError, match=message):
        choose_device(Settings(device=device))
    assert choose_device(Settings(device="auto")) == CPU
    assert choose_device(Settings()) == CPU


def test_auto_uses_an_accelerator_if_one_is_available(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert choose_device(Settings(device="auto")).type == "cuda"
    assert choose_device(Settings(device="cpu")) == CPU


@pytest.mark.parametrize(
    ("options", "cohort", "kind"),
    [
        ({}, 3, Vectorised),
        ({"runner": "loop"}, 3, Loop),
        ({"runner": "pool", "workers": 2}, 3, ProcessPool),
        ({"runner": "pool", "workers": 1}, 3, Loop),
        ({"runner": "pool", "workers": 4}, 1, Loop),
    ],
)
def test_make_runner_returns_the_requested_type(options, cohort, kind):
    federation = Federation.from_arrays([[0.0], [1.0], [2.0]], [0, 1, 0], [0, 1, 2])
    network = FunctionalModel(nn.Linear(1, 2))
    runner = make_runner(
        ClientContext(Method(), network, federation, Settings(**options), CPU), cohort
    )
    started = time.monotonic()
    runner.close()
    assert time.monotonic() - started < 1.5  # idle workers end immediately
    assert isinstance(runner, kind)
