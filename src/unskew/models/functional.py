"""A network as a pure function of flat parameters, buffers and a batch.

Methods write their local objective in terms of this class, and the same code then runs in the
sequential loop, under ``torch.vmap`` for a whole cohort, and in Flower.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from unskew.models.goals import CLASSIFY, Goal
from unskew.models.layout import Layout, head_name

Buffers = dict[str, Tensor]

Model = str | nn.Module | Callable[[], nn.Module]
"""How a run's network may be given: a name, a module, or a function that returns one."""

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)


@dataclass(frozen=True)
class Batch:
    """The samples of one step. ``scale`` is each sample's factor in the loss.

    It is the sample's weight (1 without weights) divided by the number of samples in the batch,
    and 0 for padding, so that the sum of ``scale * losses`` is the mean over the real samples.
    """

    x: Tensor
    y: Tensor
    scale: Tensor
    noise: Tensor | None = None
    """Random numbers strictly between 0 and 1; see :meth:`Method.noise_per_sample`."""


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """The output and features of one forward pass."""

    output: Tensor
    features: Tensor | None
    """The input of the head; None if the network has no head."""


class FunctionalModel:
    """A module as a pure function, and the layout of its flat vector.

    With ``compute_dtype`` the layers of a module in training mode compute in that type, as far as
    :class:`torch.autocast` finds it safe. Weights, outputs and features are float32 all the same,
    and so are losses, gradients and steps. In evaluation mode everything is float32.
    """

    def __init__(self, module: nn.Module, compute_dtype: torch.dtype | None = None) -> None:
        self.module = module
        self.compute_dtype = compute_dtype
        self.layout = Layout.of(module)
        self._sizes = [entry.size for entry in self.layout.parameters]
        self._names = [(entry.name, entry.shape) for entry in self.layout.parameters]
        kinds = [type(part) for part in module.modules()]
        self.convolutional = any(issubclass(kind, CONVOLUTIONS) for kind in kinds)
        self.couples_samples = any(
            issubclass(kind, nn.modules.batchnorm._BatchNorm) for kind in kinds
        )
        """Whether a sample's output in training depends on the other samples of its batch."""
        self._locations = _tensor_locations(module, self.layout)
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
        """Call the module, or its method ``call``, and return what it returns."""
        pieces = torch.split(weights, self._sizes)
        tensors = {
            name: piece.view(shape)
            for (name, shape), piece in zip(self._names, pieces, strict=True)
        }
        with self._autocast(weights):
            if self._locations is None:
                named = {f"module.{name}": tensor for name, tensor in (tensors | buffers).items()}
                output = functional_call(_Call(self.module, call), named, inputs)
            else:
                output = self._call_with(tensors | buffers, call, *inputs)
        return self._in_float32(output)

    @property
    def _autocasts(self) -> bool:
        return self.compute_dtype is not None and self.module.training

    def _autocast(self, weights: Tensor) -> AbstractContextManager[object]:
        if not self._autocasts:
            return nullcontext()
        # A cache of converted weights would keep tensors of vmap beyond their level.
        return torch.autocast(weights.device.type, self.compute_dtype, cache_enabled=False)

    def _in_float32(self, output: Any) -> Any:
        return output.float() if self._autocasts else output

    def _call_with(self, tensors: Mapping[str, Tensor], call: str, *inputs: Tensor) -> Any:
        """Do what ``functional_call`` does, for plain modules at a tenth of its cost."""
        assert self._locations is not None
        try:
            for name, (registry, key, _) in self._locations.items():
                registry[key] = tensors[name]
            return getattr(self.module, call)(*inputs)
        finally:
            for registry, key, original in self._locations.values():
                registry[key] = original

    def part(self, name: str, weights: Tensor, buffers: Buffers, *inputs: Tensor) -> Tensor:
        """Return the output of one submodule, such as the head, for the given inputs."""
        start = f"{name}."
        tensors = {
            entry.name.removeprefix(start): weights[entry.slice].view(entry.shape)
            for entry in self.layout.parameters
            if entry.name.startswith(start)
        }
        for key, buffer in buffers.items():
            if key.startswith(start):
                tensors[key.removeprefix(start)] = buffer
        with self._autocast(weights):
            output = functional_call(self.module.get_submodule(name), tensors, inputs)
        result: Tensor = self._in_float32(output)
        return result

    @contextmanager
    def capture_passes(self) -> Iterator[list[ForwardPass]]:
        """Collect the forward passes made inside the block, in order.

        A term of the objective can then use the features or the output of the pass that the loss
        needs anyway. A second pass would double the cost, and would count every batch twice in
        running statistics.
        """
        head_inputs: list[Tensor] = []
        passes: list[ForwardPass] = []

        def before_head(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            head_inputs.append(self._in_float32(inputs[0]))

        def after(_: nn.Module, __: object, output: Tensor) -> None:
            features = head_inputs[-1] if head_inputs else None
            passes.append(ForwardPass(self._in_float32(output), features))

        hooks = [self.module.register_forward_hook(after)]
        if self._head is not None:
            hooks.append(self._head.register_forward_pre_hook(before_head))
        try:
            yield passes
        finally:
            for hook in hooks:
                hook.remove()

    @torch.no_grad()
    def forward_eval(self, vector: Tensor, x: Tensor) -> ForwardPass:
        """Return the forward pass of another model, given as a whole vector, without gradients.

        The pass is in evaluation mode: it uses the vector's running statistics and changes none.
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
        """Return each sample's loss, as the module's goal defines it."""
        return self.goal.losses(self, weights, buffers, batch)

    def buffers_of(self, rest: Tensor) -> Buffers:
        """Return the buffers by name, from the part of a vector after the trainable coordinates.

        ``rest`` may have a leading dimension of clients. Integer buffers are converted back to
        integers, since a module may use them as indices.
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

    def copy_buffers(self, rest: Tensor) -> Buffers:
        """Return copies of the buffers in separate memory, which training changes in place.

        If they shared memory, autograd would see a change of one as a change of all; and vmap
        applies in-place changes only to contiguous tensors.
        """
        return {
            name: view.clone(memory_format=torch.contiguous_format)
            for name, view in self.buffers_of(rest).items()
        }

    def write_buffers(self, buffers: Buffers, rest: Tensor) -> None:
        """Copy buffers back into the part of a vector after the trainable coordinates."""
        for entry, view in zip(self.layout.buffers, self._views(rest), strict=True):
            view.copy_(buffers[entry.name])

    def inputs(self, x: Tensor) -> Tensor:
        """Convert stored features to the module's input: bytes become numbers from 0 to 1."""
        if x.dtype == torch.uint8:
            x = x.to(torch.float32).mul_(1 / 255)
        elif x.dtype == torch.int32:
            x = x.to(torch.int64)
        if self.convolutional and x.ndim == 4:
            # Convolutions on the CPU take half the time in channels-last format.
            x = channels_last(x)
        return x


class _Call(nn.Module):
    """A method of a module, wrapped as a module for ``functional_call``."""

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.module = module
        self.name = name

    def forward(self, *inputs: Tensor) -> Any:
        return getattr(self.module, self.name)(*inputs)


def channels_last(x: Tensor) -> Tensor:
    """Convert images to channels-last format.

    With one channel nothing has to move, but ``contiguous`` would not set the strides by which
    convolutions recognise the format.
    """
    count, channels, height, width = x.shape
    if channels == 1 and x.is_contiguous():
        return x.view(count, height, width, 1).permute(0, 3, 1, 2)
    return x.contiguous(memory_format=torch.channels_last)


def _tensor_locations(
    module: nn.Module, layout: Layout
) -> dict[str, tuple[dict[str, Any], str, Any]] | None:
    """Return where a module keeps each tensor: the dictionary, the key, and the current tensor.

    None for modules that also keep their tensors elsewhere: recurrent layers have a list of them,
    and tied weights are in two dictionaries.
    """
    owners = dict(module.named_modules())
    names = [name for name, _ in module.named_parameters(remove_duplicate=False)]
    plain = all("__setattr__" not in _defined_members(owner) for owner in owners.values())
    if not plain or len(names) != len(layout.parameters):
        return None
    locations = {}
    for entry in layout:
        path, _, key = entry.name.rpartition(".")
        owner = owners[path]
        registry: dict[str, Any] = owner._parameters if key in owner._parameters else owner._buffers
        locations[entry.name] = (registry, key, registry[key])
    return locations


def _defined_members(module: nn.Module) -> set[str]:
    """Return the names that a module's classes define beyond those of ``nn.Module``."""
    classes = [cls for cls in type(module).__mro__ if cls not in nn.Module.__mro__]
    return {name for cls in classes for name in vars(cls)}
