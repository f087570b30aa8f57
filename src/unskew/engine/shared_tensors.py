"""Tensors that the server sends to its clients, in memory shared with the worker processes.

Passing a tensor to another process takes about as long as a training step of a small network. So
the memory is passed once, and refilled in every round.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.composition.values import Tensors


def share(tensor: Tensor) -> Tensor:
    """Move a tensor into memory that is shared with the workers."""
    return tensor.share_memory_()  # type: ignore[no-untyped-call, no-any-return]


@dataclass(frozen=True)
class SharedTensorRefs:
    """A payload as references to shared tensors, by their numbers."""

    numbers: dict[str, int]
    new: dict[int, Tensor]
    """The tensors that this worker has not received yet."""
    removed: frozenset[int]
    """The tensors that this worker has received and that are not used any more."""


class SharedTensors:
    """The server's side: numbered tensors in shared memory."""

    def __init__(self) -> None:
        self._made = 0
        self._tensors: dict[int, Tensor] = {}
        self._free: list[int] = []
        self._numbers: dict[tuple[object, ...], int] = {}
        """The number of each tensor of the round, by its place in memory."""
        self._alive: list[Tensor] = []

    def begin_round(self) -> None:
        """Mark all memory as free to refill; release what the last round did not use."""
        self._tensors = {i: self._tensors[i] for i in self._numbers.values()}
        self._free, self._numbers, self._alive = list(self._tensors), {}, []

    def put(self, payload: Tensors, known: set[int]) -> SharedTensorRefs:
        """Copy a payload for a worker and return references to it; update what the worker knows.

        A tensor that several clients are sent is copied once.
        """
        numbers = {name: self._number(tensor) for name, tensor in payload.items()}
        new = {i: self._tensors[i] for i in numbers.values() if i not in known}
        removed = frozenset(known - self._tensors.keys())
        known.difference_update(removed)
        known.update(new)
        return SharedTensorRefs(numbers, new, removed)

    def _number(self, tensor: Tensor) -> int:
        # Not by identity: a view of one of several models is a new object each time.
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if place not in self._numbers:
            self._numbers[place] = self._copy(tensor)
            self._alive.append(tensor)  # so that its memory is not reused for another tensor
        return self._numbers[place]

    def _copy(self, tensor: Tensor) -> int:
        for i in self._free:
            shared = self._tensors[i]
            if shared.shape == tensor.shape and shared.dtype == tensor.dtype:
                self._free.remove(i)
                shared.copy_(tensor)
                return i
        self._made += 1
        copy = tensor.detach().clone(memory_format=torch.contiguous_format)
        self._tensors[self._made] = share(copy)
        return self._made


class SharedTensorReader:
    """A worker's side: the shared tensors that it has received."""

    def __init__(self) -> None:
        self._tensors: dict[int, Tensor] = {}

    def read(self, refs: SharedTensorRefs) -> Tensors:
        """Return the payload; its tensors are valid until the next round."""
        for i in refs.removed:
            del self._tensors[i]
        self._tensors |= refs.new
        return {name: self._tensors[i] for name, i in refs.numbers.items()}
