"""What is moved to an accelerator, and in which blocks: with the CPU as a stand-in for one."""

import sys
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import unskew as us
from every_method import SPECS, train_quickly
from marks import long_but
from toys import small_federation
from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Server
from unskew.engine import chunks, placement
from unskew.engine.chunks import Chunks
from unskew.engine.client import ClientContext
from unskew.engine.settings import Settings
from unskew.methods import METHODS, make_method
from unskew.methods.fedavg import FedAvg
from unskew.models import make
from unskew.models.functional import FunctionalModel

CLIENTS, SIZE, ROUNDS, PIXELS = 4, 20, 3, 144
CPU, ACCELERATOR, CHOSEN = torch.device("cpu"), torch.device("cpu", 0), torch.device("cpu", 1)
"""The chosen device is not equal to that of its tensors, like mps and mps:0, cuda and cuda:0."""
_TAKES_INDICES_OF_THE_CPU = {torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default}


@pytest.fixture
def federation():
    rng = np.random.default_rng(0)
    x = rng.random((CLIENTS * SIZE, 1, 12, 12), dtype=np.float32)
    y = rng.integers(0, 3, len(x))
    return us.Federation.from_arrays(x, y, np.arange(len(x)) // SIZE, holdout=0.25)


class StandIn(TorchDispatchMode):
    """The CPU in two roles: tensors are on an accelerator if they were moved or computed there.

    ``sent`` and ``returned`` are the sizes of the tensors that crossed. As on a real accelerator,
    an operation on tensors of both is an error.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[int] = []
        self.returned: list[int] = []
        self._there: dict[int, torch.Tensor] = {}  # so that no memory is used twice
        self._anywhere: dict[int, torch.Tensor] = {}

    def to_device(self, tensor, device):
        if (self.device_of(tensor) == ACCELERATOR) == _is_accelerator(device):
            return tensor
        copy = tensor.clone()
        if _is_accelerator(device):
            self.sent.append(tensor.numel())
            self._mark(copy)
        else:
            self.returned.append(tensor.numel())
            self._there.pop(_address(copy), None)
        return copy

    def device_of(self, tensor):
        return ACCELERATOR if _address(tensor) in self._there else CPU

    def _mark(self, tensor):
        if tensor.numel():  # an empty tensor has no memory to know it by
            self._there[_address(tensor)] = tensor

    def moving(self, original):
        """Return a stand-in for ``Tensor.to``."""

        def to(tensor, *args, **kwargs):
            result = original(tensor, *args, **kwargs)
            target = kwargs.get("device", args[0] if args else None)
            if isinstance(target, torch.Tensor):
                target = self.device_of(target)
            if isinstance(target, str | torch.device):
                return self.to_device(result, torch.device(target))
            return result

        return to

    def only_on_the_cpu(self, original):
        """Return a stand-in for ``Tensor.numpy``."""

        def numpy(tensor, *args, **kwargs):
            assert self.device_of(tensor) == CPU, "numpy() of a tensor on the accelerator"
            return original(tensor, *args, **kwargs)

        return numpy

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        inputs = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        inputs = [each for each in inputs if _address(each) not in self._anywhere]
        there = [each for each in inputs if self.device_of(each) == ACCELERATOR]
        here = [each for each in inputs if each.ndim and self.device_of(each) == CPU]
        result = func(*args, **kwargs)
        moves = func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
        if there and here and not moves:
            assert func in _TAKES_INDICES_OF_THE_CPU, f"{func} takes tensors of two devices"
        is_there = there and func is not torch.ops.aten.copy_.default
        if _is_accelerator(kwargs.get("device")) or is_there:
            for each in tree_leaves(result):
                if isinstance(each, torch.Tensor):
                    self._mark(each)
        elif not inputs and torch._C._current_graph_task_id() != -1:
            # A backward pass makes zeros where there is no gradient, on the device of the others.
            self._anywhere[_address(result)] = result
        return result


def _is_accelerator(device):
    return device in (ACCELERATOR, CHOSEN)


def _address(tensor):
    while is_functorch_wrapped_tensor(tensor):
        tensor = get_unwrapped(tensor)
    return tensor.untyped_storage().data_ptr()


@pytest.fixture
def stand_in(monkeypatch):
    import_module("unskew.experiments.training")  # what is imported later would not be patched
    stand_in = StandIn()
    fakes = {
        "to_device": stand_in.to_device,
        "is_accelerator": _is_accelerator,
        "choose_device": lambda _: CHOSEN,
    }
    for module in [each for name, each in sys.modules.items() if name.startswith("unskew.")]:
        for name in fakes.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, fakes[name])
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: stand_in.to_device(tensor, CPU))
    monkeypatch.setattr(torch.Tensor, "device", property(stand_in.device_of))
    monkeypatch.setattr(torch.Tensor, "to", stand_in.moving(torch.Tensor.to))
    monkeypatch.setattr(torch.Tensor, "numpy", stand_in.only_on_the_cpu(torch.Tensor.numpy))
    placement._moved.clear()
    with stand_in:
        yield stand_in
    placement._moved.clear()


def vector_of(run):
    return torch.cat([each.flatten() for each in run.model.state_dict().values()])


@pytest.mark.parametrize("runner", ["vectorised", "loop"])
@pytest.mark.parametrize("method", ["fedavg", "ditto"])
def test_samples_are_moved_once(federation, stand_in, runner, method):
    us.train(federation, method, runner=runner, rounds=ROUNDS, batch_size=5, model="mlp:hidden=7")
    example = 2 * PIXELS  # what networks and the memory per sample are tried with
    of_samples = [n for n in stand_in.sent if n % PIXELS == 0 and n != example]
    assert sorted(of_samples) == sorted([federation.train.x.size, federation.test.x.size])


@pytest.mark.parametrize("evaluate_every", [0, 1])
@pytest.mark.parametrize("method", ["fedavg", "mean", "fedprox:mu=0.1", "fedprox:mu=0.1+mean"])
def test_no_model_comes_back_between_rounds(federation, stand_in, method, evaluate_every):
    options = {"rounds": ROUNDS, "model": "lenet5", "evaluate_every": evaluate_every}
    run = us.train(federation, method, **options)
    size = FunctionalModel(run.model).layout.size
    # The initial model, which is also the center of FedProx's term.
    assert {n for n in stand_in.sent if n >= size} == {size}
    assert stand_in.sent.count(size) == (2 if "fedprox" in method else 1)
    assert [n for n in stand_in.returned if n >= size] == [size]  # the last one, at the end


def test_a_run_resumes_from_a_model_that_was_on_the_accelerator(federation, stand_in, tmp_path):
    options = {"rounds": ROUNDS, "model": "lenet5", "checkpoint_seconds": 0.0}
    run = us.train(federation, "fedavg", out=tmp_path / "run", **options)
    size = FunctionalModel(run.model).layout.size
    options |= {"rounds": ROUNDS + 2}
    again = us.train(federation, "fedavg", out=tmp_path / "run", resume=True, **options)
    assert [n for n in stand_in.sent if n >= size] == [size, size]  # once per start
    whole = us.train(federation, "fedavg", **options)
    assert torch.equal(vector_of(again), vector_of(whole))


def test_methods_that_aggregate_on_the_cpu_get_all_models_at_once(federation, stand_in):
    run = us.train(federation, "median", rounds=ROUNDS, model="lenet5")
    size = FunctionalModel(run.model).layout.size
    # Each round trains one, which was evaluated before; the last one is only evaluated.
    assert stand_in.sent.count(size) == ROUNDS + 1
    assert stand_in.returned.count(CLIENTS * size) == ROUNDS


def test_cohorts_that_do_not_fit_are_aggregated_on_the_cpu(federation, stand_in):
    run = us.train(federation, "fedavg", rounds=ROUNDS, model="mlp:hidden=7", memory="100KB")
    size = FunctionalModel(run.model).layout.size
    assert stand_in.sent.count(size) == ROUNDS + 1


def test_clients_that_train_one_after_the_other_share_the_moved_model(federation, stand_in):
    run = us.train(federation, "fedavg", rounds=ROUNDS, model="mlp:hidden=7", runner="loop")
    size = FunctionalModel(run.model).layout.size
    assert stand_in.sent.count(size) == ROUNDS + 1
    assert stand_in.returned.count(size) == ROUNDS * CLIENTS  # Flower's server has them there too


def test_parts_say_themselves_that_they_work_on_any_device():
    declared = [name for name, part in METHODS.items() if part.works_on_any_device]
    assert declared == ["fedavg", "mean", "fedprox"]

    class Custom(FedAvg):
        pass

    assert not Custom.works_on_any_device


@pytest.mark.parametrize("spec", ["fedavg", "mean", "fedprox", "fedavg+mean"])
def test_aggregation_reads_no_model_on_the_cpu(spec):
    """Tensors of the device ``meta`` have no values to read, and do not mix with others."""
    stack = torch.empty(3, 50_000, device="meta")
    uploads = Uploads.of(stack, samples=[1, 2, 3], previous=stack[0])
    server, _ = make_method(spec).aggregate(Server(stack[0]), uploads)
    assert server.vector.is_meta


NO_STAND_IN = ("feddisk", "latent")
"""Their stages validate the name of the device, and the stand-in's is none that a user can give."""
FOLLOWED = [spec for spec in SPECS if spec.partition(":")[0] not in NO_STAND_IN]


@pytest.mark.parametrize("method", long_but(("scaffold", "fedas", "fedala"), FOLLOWED))
@pytest.mark.parametrize("runner", ["vectorised", "loop"])
def test_no_method_mixes_devices(stand_in, method, runner):
    federation = small_federation(sizes=(12, 10, 9, 8, 11, 10, 9))  # enough for Bulyan
    train_quickly(federation, method, runner=runner, rounds=2)


def test_a_model_that_was_changed_in_place_is_moved_again(stand_in):
    models, model = placement.ModelOnDevice(), torch.zeros(3)
    assert models.of(model, CHOSEN) is models.of(model, ACCELERATOR)
    model += 1
    assert models.of(model, CHOSEN).tolist() == [1, 1, 1]
    assert models.of(torch.zeros(3), CHOSEN).tolist() == [0, 0, 0]
    assert len(stand_in.sent) == 3


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
    assert federation.train.x.size not in stand_in.sent


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


def test_blocks_keep_their_size_while_others_use_the_device(federation, stand_in, monkeypatch):
    left = iter([2.0**25, 2.0**20])
    monkeypatch.setattr(chunks, "free_memory", lambda _: next(left))
    sizes = Chunks(replace(context_of(federation, "lenet5"), device=CHOSEN))
    assert sizes.clients(SIZE) == sizes.clients(SIZE) > 1


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
