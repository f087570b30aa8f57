"""The layout of a network's tensors in one flat float32 vector.

Trainable parameters come first, then floating-point buffers, then counters. Rules that must not
change statistics or counters therefore use only the first ``trainable`` coordinates.
"""

import builtins
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import torch
from torch import Tensor, nn

from unskew.models.masks import none_if_empty


class TensorKind(StrEnum):
    """What a tensor is for."""

    WEIGHT = "weight"
    BIAS = "bias"
    NORM_AFFINE = "norm affine"
    HEAD = "head"
    NORM_STATISTIC = "norm statistic"
    BUFFER = "buffer"
    COUNTER = "counter"


@dataclass(frozen=True)
class Entry:
    """One tensor: its name in the module, its slice of the vector, its shape and its kind."""

    name: str
    start: int
    stop: int
    shape: tuple[int, ...]
    kind: TensorKind
    dtype: torch.dtype = torch.float32
    batch_norm: bool = False
    """Whether the tensor belongs to a BatchNorm layer."""
    norm: bool = False
    """Whether the tensor belongs to a normalisation layer of any type, even in the head."""
    frozen: bool = False
    """Whether the tensor is a parameter that does not require a gradient."""

    @property
    def slice(self) -> builtins.slice:
        """The tensor's slice of the vector."""
        return slice(self.start, self.stop)

    @property
    def size(self) -> int:
        """The number of elements of the tensor."""
        return self.stop - self.start


@dataclass(frozen=True)
class Layout:
    """All tensors of a network, in the order of the vector."""

    entries: tuple[Entry, ...]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    @cached_property
    def size(self) -> int:
        """The length of the vector."""
        return self.entries[-1].stop if self.entries else 0

    @cached_property
    def fingerprint(self) -> str:
        """A hash of names, shapes and kinds; vectors can be averaged if theirs are equal."""
        lines = [
            f"{entry.name} {entry.shape} {entry.kind}{' frozen' * entry.frozen}"
            for entry in self.entries
        ]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    @cached_property
    def trainable(self) -> int:
        """The number of trainable coordinates, which come first."""
        return sum(entry.size for entry in self.parameters)

    @cached_property
    def parameters(self) -> tuple[Entry, ...]:
        """The trainable tensors."""
        fixed = (TensorKind.NORM_STATISTIC, TensorKind.BUFFER, TensorKind.COUNTER)
        return tuple(entry for entry in self.entries if entry.kind not in fixed)

    @cached_property
    def buffers(self) -> tuple[Entry, ...]:
        """Statistics, other buffers and counters."""
        return self.entries[len(self.parameters) :]

    @cached_property
    def counters(self) -> slice:
        """The last part of the vector: integers, which are aggregated by maximum, not mean."""
        sizes = sum(entry.size for entry in self.entries if entry.kind is TensorKind.COUNTER)
        return slice(self.size - sizes, self.size)

    @cached_property
    def frozen(self) -> Tensor | None:
        """Mark the coordinates of frozen parameters; None means none.

        They are the same on all clients: never trained, and not sent in a round.
        """
        return none_if_empty(self.mask_where(lambda entry: entry.frozen))

    @property
    def is_frozen(self) -> bool:
        """Whether there are parameters, and all are frozen."""
        return bool(self.parameters) and all(entry.frozen for entry in self.parameters)

    def with_frozen(self, vector: Tensor, before: Tensor) -> Tensor:
        """Return a vector, or rows of vectors, with the frozen parameters of another vector.

        Any computation with equal values may change their last digit.
        """
        return vector if self.frozen is None else torch.where(self.frozen, before, vector)

    def mask(self, *kinds: TensorKind) -> Tensor:
        """Mark the coordinates of the given kinds."""
        return self.mask_where(lambda entry: entry.kind in kinds)

    def mask_where(self, chosen: Callable[[Entry], bool]) -> Tensor:
        """Mark the coordinates of the chosen tensors."""
        mask = torch.zeros(self.size, dtype=torch.bool)
        for entry in self.entries:
            if chosen(entry):
                mask[entry.slice] = True
        return mask

    def nbytes(self, mask: Tensor | None = None) -> int:
        """Return the bytes of the whole vector, or of the marked coordinates, when sent."""
        return sum(
            entry.dtype.itemsize * (entry.size if mask is None else int(mask[entry.slice].sum()))
            for entry in self.entries
        )

    def tensors(self, vector: Tensor) -> "OrderedDict[str, Tensor]":
        """Return the named tensors of a vector, as views."""
        return OrderedDict(
            (entry.name, vector[entry.slice].view(entry.shape)) for entry in self.entries
        )

    @staticmethod
    def flat(size: int) -> "Layout":
        """Return the layout of a single trainable vector."""
        return Layout((Entry("vector", 0, size, (size,), TensorKind.WEIGHT),))

    @staticmethod
    def of(module: nn.Module) -> "Layout":
        """Return the layout of a module's parameters and persistent buffers."""
        owners = dict(module.named_modules())
        head = head_name(module)
        kept = set(module.state_dict(keep_vars=True))
        groups: tuple[list[tuple[str, Tensor, TensorKind]], ...] = ([], [], [])
        for name, parameter in module.named_parameters():
            kind = _parameter_kind(name, owners[name.rpartition(".")[0]], head)
            groups[0].append((name, parameter, kind))
        for name, buffer in module.named_buffers():
            if name in kept:
                kind = _buffer_kind(buffer, owners[name.rpartition(".")[0]])
                groups[2 if kind is TensorKind.COUNTER else 1].append((name, buffer, kind))
        entries, start = [], 0
        for name, tensor, kind in groups[0] + groups[1] + groups[2]:
            stop = start + tensor.numel()
            owner, shape = owners[name.rpartition(".")[0]], tuple(tensor.shape)
            of_norm = isinstance(owner, _BATCH_NORM), isinstance(owner, NORMS)
            frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad
            entries.append(Entry(name, start, stop, shape, kind, tensor.dtype, *of_norm, frozen))
            start = stop
        return Layout(tuple(entries))


def flatten(module: nn.Module, layout: Layout) -> Tensor:
    """Copy a module's tensors into one new float32 vector."""
    state = module.state_dict()
    pieces = [state[entry.name].detach().reshape(-1).to("cpu", torch.float32) for entry in layout]
    return torch.cat(pieces) if pieces else torch.empty(0)


def assign(module: nn.Module, layout: Layout, vector: Tensor) -> None:
    """Copy a vector into a module's tensors."""
    with torch.no_grad():
        state = module.state_dict()
        for name, value in layout.tensors(vector).items():
            state[name].copy_(value)


def rows_are_finite(rows: Tensor) -> Tensor:
    """Return for each row of a matrix (or for a vector) whether all its numbers are finite.

    The product with a tiny constant propagates infinities and NaN and cannot overflow. It reads
    the memory once and needs no mask as large as the matrix.
    """
    return torch.isfinite(rows @ torch.full((rows.shape[-1],), 1e-30, device=rows.device))


def head_name(module: nn.Module) -> str | None:
    """Return the name of the head: the submodule ``head``, else the last linear layer."""
    if isinstance(getattr(module, "head", None), nn.Module):
        return "head"
    linear = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    return linear[-1] if linear else None


_BATCH_NORM = nn.modules.batchnorm._BatchNorm
NORMS = (
    _BATCH_NORM,
    nn.modules.instancenorm._InstanceNorm,
    nn.GroupNorm,
    nn.LayerNorm,
)


def _parameter_kind(name: str, owner: nn.Module, head: str | None) -> TensorKind:
    if head is not None and (name.startswith(f"{head}.") or (head == "" and "." not in name)):
        return TensorKind.HEAD
    if isinstance(owner, NORMS):
        return TensorKind.NORM_AFFINE
    return TensorKind.BIAS if name.rpartition(".")[2].startswith("bias") else TensorKind.WEIGHT


def _buffer_kind(tensor: Tensor, owner: nn.Module) -> TensorKind:
    if not tensor.is_floating_point():
        return TensorKind.COUNTER
    return TensorKind.NORM_STATISTIC if isinstance(owner, NORMS) else TensorKind.BUFFER
