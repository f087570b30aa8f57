import pytest
import torch
from torch import nn

from unskew.data.federation import Federation
from unskew.engine.client import ClientContext, Loop
from unskew.engine.process_pool import ProcessPool, start_method
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
    assert chosen(make("lenet5", (1, 28, 28), 10), (1, 28, 28)) == "processes"


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

    assert chosen(WithDropout()) == "processes"


def test_a_requested_runner_is_used():
    for runner in ("loop", "processes", "vectorised"):
        assert chosen(make("mlp", (4,), 2), runner=runner) == runner


def test_convolutions_are_vectorised_on_an_accelerator(monkeypatch):
    monkeypatch.setattr("unskew.engine.runners.is_accelerator", lambda _: True)
    images = torch.zeros(2, 1, 28, 28)

    def chosen_there(model, **options):
        network = FunctionalModel(make(model, (1, 28, 28), 10))
        return resolve_runner(network, Settings(**options), CPU, images)

    assert chosen_there("lenet5") == "vectorised"
    assert chosen_there("lenet5:norm=batch") == "loop"
    with pytest.raises(UnskewError, match="runner: 'processes' works on the cpu"):
        chosen_there("lenet5", runner="processes")


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps"])
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
    # With a number, like the device of its tensors, to which it is compared.
    for name in ("auto", "cuda"):
        assert choose_device(Settings(device=name)) == torch.device("cuda", 0)
    assert choose_device(Settings(device="cpu")) == CPU


def test_a_gpu_can_be_chosen_by_its_number(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert choose_device(Settings(device="cuda:1")) == torch.device("cuda", 1)
    with pytest.raises(UnskewError, match="device: 'cuda:2' is not available here"):
        choose_device(Settings(device="cuda:2"))


def test_workers_are_forked_unless_this_process_uses_a_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert start_method() == "fork"
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    assert start_method() == "spawn"


@pytest.mark.parametrize(
    ("options", "cohort", "kind"),
    [
        ({}, 3, Vectorised),
        ({"runner": "loop"}, 3, Loop),
        ({"runner": "processes", "workers": 2}, 3, ProcessPool),
        ({"runner": "processes", "workers": 1}, 3, Loop),
        ({"runner": "processes", "workers": 4}, 1, Loop),
    ],
)
def test_make_runner_returns_the_requested_type(options, cohort, kind, monkeypatch):
    monkeypatch.setattr("unskew.engine.process_pool._SHUTDOWN_SECONDS", 60)
    federation = Federation.from_arrays([[0.0], [1.0], [2.0]], [0, 1, 0], [0, 1, 2])
    network = FunctionalModel(nn.Linear(1, 2))
    runner = make_runner(
        ClientContext(Method(), network, federation, Settings(**options), CPU), cohort
    )
    runner.close()
    assert isinstance(runner, kind)
    if kind is ProcessPool:  # idle workers end by themselves
        assert [worker._process.exitcode for worker in runner._workers] == [0, 0]
