"""What is moved to an accelerator, and in which blocks: with the CPU as a stand-in for one."""

import numpy as np
import pytest
import torch

import unskew as us
from unskew.engine import chunks, client, evaluate, placement, runners, vectorised
from unskew.engine.chunks import Chunks
from unskew.engine.client import ClientContext
from unskew.engine.settings import Settings
from unskew.methods import make_method
from unskew.models import make
from unskew.models.functional import FunctionalModel

CLIENTS, SIZE, ROUNDS, PIXELS = 4, 20, 3, 144
MODULES = (chunks, client, evaluate, placement, runners, vectorised)


@pytest.fixture
def federation():
    rng = np.random.default_rng(0)
    x = rng.random((CLIENTS * SIZE, 1, 12, 12), dtype=np.float32)
    y = rng.integers(0, 3, len(x))
    return us.Federation.from_arrays(x, y, np.arange(len(x)) // SIZE, holdout=0.25)


class StandIn:
    """The CPU in the role of an accelerator; ``moved`` are the sizes of the tensors it received."""

    def __init__(self) -> None:
        self.moved: list[int] = []
        self._there: dict[int, torch.Tensor] = {}

    def to_device(self, tensor, device):
        del device
        if tensor.untyped_storage().data_ptr() in self._there:
            return tensor
        self.moved.append(tensor.numel())
        copy = tensor.clone()
        self._there[copy.untyped_storage().data_ptr()] = copy
        return copy


@pytest.fixture
def stand_in(monkeypatch):
    stand_in = StandIn()
    fakes = {"to_device": stand_in.to_device, "is_accelerator": lambda _: True}
    for module in MODULES:
        for name in fakes.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, fakes[name])
    placement._moved.clear()
    yield stand_in
    placement._moved.clear()


def vector_of(run):
    return torch.cat([each.flatten() for each in run.model.state_dict().values()])


@pytest.mark.parametrize("runner", ["vectorised", "loop"])
@pytest.mark.parametrize("method", ["fedavg", "ditto"])
def test_samples_are_moved_once(federation, stand_in, runner, method):
    us.train(federation, method, runner=runner, rounds=ROUNDS, batch_size=5, model="mlp:hidden=7")
    example = 2 * PIXELS  # what the memory per sample is measured with
    of_samples = [n for n in stand_in.moved if n % PIXELS == 0 and n != example]
    assert sorted(of_samples) == sorted([federation.train.x.size, federation.test.x.size])


@pytest.mark.parametrize("evaluate_every", [0, 1])
def test_a_global_model_is_moved_once(federation, stand_in, evaluate_every):
    options = {"rounds": ROUNDS, "model": "lenet5", "evaluate_every": evaluate_every}
    run = us.train(federation, "fedavg", **options)
    size = FunctionalModel(run.model).layout.size
    # Each round trains one, which was evaluated before; the last one is only evaluated.
    assert stand_in.moved.count(size) == ROUNDS + (1 if evaluate_every else 0)
    assert stand_in.moved.count(CLIENTS * size) == ROUNDS  # all trained models, back at once


def test_clients_that_train_one_after_the_other_share_the_moved_model(federation, stand_in):
    run = us.train(federation, "fedavg", rounds=ROUNDS, model="mlp:hidden=7", runner="loop")
    size = FunctionalModel(run.model).layout.size
    there, back = ROUNDS + 1, ROUNDS * CLIENTS
    assert stand_in.moved.count(size) == there + back


def test_a_model_that_was_changed_in_place_is_moved_again(stand_in):
    models, model, device = placement.ModelOnDevice(), torch.zeros(3), torch.device("cpu")
    assert models.of(model, device) is models.of(model, device)
    model += 1
    assert models.of(model, device).tolist() == [1, 1, 1]
    assert models.of(torch.zeros(3), device).tolist() == [0, 0, 0]
    assert len(stand_in.moved) == 3


@pytest.mark.parametrize("runner", ["vectorised", "loop"])
def test_where_samples_are_does_not_change_the_result(federation, runner, request):
    options = {"rounds": 2, "runner": runner, "model": "mlp:hidden=7", "memory": "1GiB"}
    here = us.train(federation, "scaffold", **options)
    request.getfixturevalue("stand_in")
    there = us.train(federation, "scaffold", **options)
    torch.testing.assert_close(vector_of(there), vector_of(here), rtol=1e-6, atol=1e-7)
    assert there.metrics[-1]["local"] == pytest.approx(here.metrics[-1]["local"])


def test_samples_that_do_not_fit_stay_where_they_are(federation, stand_in, monkeypatch):
    monkeypatch.setattr(placement, "free_memory", lambda _: 1000.0)
    us.train(federation, "fedavg", runner="loop", rounds=1, batch_size=5, model="mlp:hidden=7")
    assert federation.train.x.size not in stand_in.moved


def context_of(federation, model, **options):
    network = FunctionalModel(make(model, federation.shape, 3))
    cpu = torch.device("cpu")
    return ClientContext(make_method("fedavg"), network, federation, Settings(**options), cpu)


def test_blocks_follow_the_memory(federation):
    small, large, tiny = (
        Chunks(context_of(federation, "lenet5", memory=memory)).clients(SIZE)
        for memory in ("32MiB", "320MiB", "1KiB")
    )
    assert large == pytest.approx(10 * small, rel=0.2)
    assert tiny == 1


def test_blocks_count_what_autograd_saves(federation):
    short, long = (
        Chunks(context_of(federation, "lenet5", memory="64MiB", batch_size=size)).clients(100)
        for size in (1, 64)
    )
    assert long < short


def test_blocks_train_to_the_same_model(federation):
    options = {"rounds": 2, "runner": "vectorised", "model": "mlp:hidden=7"}
    whole = us.train(federation, "fedavg", **options)
    blocks = us.train(federation, "fedavg", memory="100KB", **options)
    context = context_of(federation, "mlp:hidden=7", memory="100KB")
    assert Chunks(context).clients(SIZE) < CLIENTS
    torch.testing.assert_close(vector_of(blocks), vector_of(whole), rtol=1e-5, atol=1e-6)


def test_moved_samples_are_freed_with_their_federation(federation, stand_in):
    copy = us.Federation.from_arrays(
        federation.train.x, federation.train.y, np.zeros(federation.train.samples, dtype=int)
    )
    us.train(copy, "fedavg", rounds=1, model="mlp:hidden=7")
    assert len(placement._moved) == 1
    del copy
    assert len(placement._moved) == 0


def test_arrays_are_copied_only_if_torch_cannot_share_them():
    shared = np.zeros(3, np.float32)
    assert placement.to_tensor(shared).data_ptr() == shared.ctypes.data
    assert placement.to_tensor(np.zeros(3)).dtype == torch.float32
    assert placement.to_tensor(np.zeros(3, np.uint16)).dtype == torch.int64
    shared.flags.writeable = False
    assert placement.to_tensor(shared).data_ptr() != shared.ctypes.data
