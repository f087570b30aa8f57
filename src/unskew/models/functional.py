"""A network as a pure function of flat parameters, buffers and a batch.

Methods write their local objective against this, and the same text then serves the plain loop,
``torch.vmap`` over a whole cohort, and Flower.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from unskew.models.goals import CLASSIFY, Goal
from unskew.models.layout import Layout, head_name

Buffers = dict[str, Tensor]

Model = str | nn.Module | Callable[[], nn.Module]
"""What a run's network may be given as: a name, a module, or a function that makes one."""

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)


@dataclass(frozen=True)
class Batch:
    """Samples of one step. ``scale`` is each sample's factor in the loss.

    It is the sample's weight (1 without weights) divided by the number of samples in the batch,
    and 0 for padding, so that summing ``scale * losses`` is the mean a client alone would take.
    """

    x: Tensor
    y: Tensor
    scale: Tensor
    noise: Tensor | None = None
    """Random numbers strictly between 0 and 1, as many a sample as the method asks for."""


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """What one pass through a network made of its samples."""

    output: Tensor
    features: Tensor | None
    """What the head was given; None if the network has no linear layer to be its head."""


class FunctionalModel:
    """A module taken apart into a function and the layout of its flat vector."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.layout = Layout.of(module)
        self._sizes = [entry.size for entry in self.layout.parameters]
        self._names = [(entry.name, entry.shape) for entry in self.layout.parameters]
        kinds = [type(part) for part in module.modules()]
        self.convolutional = any(issubclass(kind, _CONVOLUTIONS) for kind in kinds)
        self.couples_samples = any(
            issubclass(kind, nn.modules.batchnorm._BatchNorm) for kind in kinds
        )
        """Whether a sample's output in training depends on the others of its batch."""
        self.frozen = _frozen(module, self.layout)
        """Marks the parameters that do not ask for a gradient; None if all do."""
        self._places = _places(module, self.layout)
        head = head_name(module)
        self._head = None if head is None else module.get_submodule(head)
        self.goal: Goal = getattr(module, "goal", CLASSIFY)

    def __call__(self, weights: Tensor, buffers: Buffers, x: Tensor) -> Tensor:
        """Return the module's output with these flat trainable parameters and these buffers."""
        output: Tensor = self.run(weights, buffers, x)
        return output

    def run(
        self, weights: Tensor, buffers: Buffers, *inputs: Tensor, call: str = "__call__"
    ) -> Any:
        """Return what the module, or its method ``call``, returns; it may be several tensors."""
        pieces = torch.split(weights, self._sizes)
        tensors = {
            name: piece.view(shape)
            for (name, shape), piece in zip(self._names, pieces, strict=True)
        }
        if self._places is None:
            named = {f"module.{name}": tensor for name, tensor in (tensors | buffers).items()}
            return functional_call(_Call(self.module, call), named, inputs)
        return self._call_with(tensors | buffers, call, *inputs)

    def _call_with(self, tensors: Mapping[str, Tensor], call: str, *inputs: Tensor) -> Any:
        """Do what ``functional_call`` does for plain modules, at a tenth of its cost."""
        assert self._places is not None
        try:
            for name, (home, key, _) in self._places.items():
                home[key] = tensors[name]
            return getattr(self.module, call)(*inputs)
        finally:
            for home, key, own in self._places.values():
                home[key] = own

    def part(self, name: str, weights: Tensor, buffers: Buffers, *inputs: Tensor) -> Tensor:
        """Return what one submodule, such as the head, makes of inputs of its own."""
        start = f"{name}."
        tensors = {
            entry.name.removeprefix(start): weights[entry.place].view(entry.shape)
            for entry in self.layout.parameters
            if entry.name.startswith(start)
        }
        for key, buffer in buffers.items():
            if key.startswith(start):
                tensors[key.removeprefix(start)] = buffer
        output: Tensor = functional_call(self.module.get_submodule(name), tensors, inputs)
        return output

    @contextmanager
    def capture_passes(self) -> Iterator[list[ForwardPass]]:
        """Collect the passes that are made meanwhile, in order.

        So a term of the objective can use the features or the output of the pass that the loss
        made anyway. Running the network again would cost as much once more, and would count
        every batch twice in running statistics.
        """
        given: list[Tensor] = []
        passes: list[ForwardPass] = []

        def before_head(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            given.append(inputs[0])

        def after(_: nn.Module, __: object, output: Tensor) -> None:
            passes.append(ForwardPass(output, given[-1] if given else None))

        hooks = [self.module.register_forward_hook(after)]
        if self._head is not None:
            hooks.append(self._head.register_forward_pre_hook(before_head))
        try:
            yield passes
        finally:
            for hook in hooks:
                hook.remove()

    @torch.no_grad()
    def consult(self, vector: Tensor, x: Tensor) -> ForwardPass:
        """Return what another model, given as a whole vector, makes of samples.

        It judges in evaluation mode, by its own running statistics, and learns nothing.
        """
        trainable = self.layout.trainable
        self.module.eval()
        try:
            with self.capture_passes() as passes:
                self(vector[:trainable], self.buffers_of(vector[trainable:]), x)
        finally:
            self.module.train()
        return passes[0]

    def losses(self, weights: Tensor, buffers: Buffers, batch: Batch) -> Tensor:
        """Return each sample's loss, as the module's goal has it."""
        return self.goal.losses(self, weights, buffers, batch)

    def buffers_of(self, rest: Tensor) -> Buffers:
        """Name the buffers in the part of a vector behind the trainable coordinates.

        ``rest`` may have a leading dimension of clients. Whole numbers become whole again, since
        a module may use them as places.
        """
        return {
            entry.name: view.to(entry.dtype)
            for entry, view in zip(self.layout.buffers, self._views(rest), strict=True)
        }

    def _views(self, rest: Tensor) -> list[Tensor]:
        first, lead = self.layout.trainable, rest.shape[:-1]
        return [
            rest[..., entry.start - first : entry.stop - first].view((*lead, *entry.shape))
            for entry in self.layout.buffers
        ]

    def own_buffers(self, rest: Tensor) -> Buffers:
        """Return copies of the buffers, each in memory of its own, for training to change.

        Running statistics change in place. Autograd would see a change of one as a change of all
        if they shared memory, and vmap passes changes on only to contiguous tensors.
        """
        return {
            name: view.clone(memory_format=torch.contiguous_format)
            for name, view in self.buffers_of(rest).items()
        }

    def put_buffers(self, buffers: Buffers, rest: Tensor) -> None:
        """Copy buffers back to their places behind the trainable coordinates."""
        for entry, view in zip(self.layout.buffers, self._views(rest), strict=True):
            view.copy_(buffers[entry.name])

    def inputs(self, x: Tensor) -> Tensor:
        """Turn stored features into what the module takes: bytes become numbers from 0 to 1."""
        if x.dtype == torch.uint8:
            x = x.to(torch.float32).mul_(1 / 255)
        elif x.dtype == torch.int32:
            x = x.to(torch.int64)
        if self.convolutional and x.ndim == 4:
            # Convolutions on the CPU take half the time when channels lie side by side.
            x = channels_last(x)
        return x


class _Call(nn.Module):
    """A method of a module, as the module that ``functional_call`` wants."""

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.module = module
        self.name = name

    def forward(self, *inputs: Tensor) -> Any:
        return getattr(self.module, self.name)(*inputs)


def channels_last(x: Tensor) -> Tensor:
    """Lay images out with their channels side by side.

    With one channel nothing has to move, but ``contiguous`` would not say so in the strides, by
    which convolutions go.
    """
    count, channels, height, width = x.shape
    if channels == 1 and x.is_contiguous():
        return x.view(count, height, width, 1).permute(0, 3, 1, 2)
    return x.contiguous(memory_format=torch.channels_last)


def _places(module: nn.Module, layout: Layout) -> dict[str, tuple[dict[str, Any], str, Any]] | None:
    """Find where a module keeps each tensor: the dictionary, the key, and the tensor there now.

    None for modules that do more than look their tensors up there: recurrent layers keep a list
    of their own, and tied weights live in two places.
    """
    owners = dict(module.named_modules())
    names = [name for name, _ in module.named_parameters(remove_duplicate=False)]
    plain = all("__setattr__" not in _own_members(owner) for owner in owners.values())
    if not plain or len(names) != len(layout.parameters):
        return None
    places = {}
    for entry in layout:
        path, _, key = entry.name.rpartition(".")
        owner = owners[path]
        home: dict[str, Any] = owner._parameters if key in owner._parameters else owner._buffers
        places[entry.name] = (home, key, home[key])
    return places


def _frozen(module: nn.Module, layout: Layout) -> Tensor | None:
    asks = {name: parameter.requires_grad for name, parameter in module.named_parameters()}
    if all(asks.values()):
        return None
    mask = torch.zeros(layout.trainable, dtype=torch.bool)
    for entry in layout.parameters:
        mask[entry.place] = not asks[entry.name]
    return mask


def _own_members(module: nn.Module) -> set[str]:
    """Return what a module's classes define themselves, beyond ``nn.Module``."""
    classes = [cls for cls in type(module).__mro__ if cls not in nn.Module.__mro__]
    return {name for cls in classes for name in vars(cls)}
