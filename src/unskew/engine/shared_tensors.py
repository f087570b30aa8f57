"""What the server sends to its clients, in memory that the worker processes see too.

To hand a tensor to another process takes about as long as a training step of a small network. So
the memory is handed over once, and filled anew in every round.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.methods.common.base import Tensors


def share(tensor: Tensor) -> Tensor:
    """Move a tensor into memory that the workers see too."""
    return tensor.share_memory_()  # type: ignore[no-untyped-call, no-any-return]


@dataclass(frozen=True)
class SharedTensorRefs:
    """A payload on its way to a worker: which tensors of the shelf it consists of."""

    numbers: dict[str, int]
    new: dict[int, Tensor]
    """Those that this worker has not seen before."""
    gone: frozenset[int]
    """Those that it has seen and that will not come again."""


class SharedTensors:
    """The server's side: numbered tensors in shared memory."""

    def __init__(self) -> None:
        self._made = 0
        self._tensors: dict[int, Tensor] = {}
        self._free: list[int] = []
        self._placed: dict[tuple[object, ...], int] = {}
        self._alive: list[Tensor] = []

    def begin_round(self) -> None:
        """Let all memory be filled again; what the last round did not need is given back."""
        self._tensors = {i: self._tensors[i] for i in self._placed.values()}
        self._free, self._placed, self._alive = list(self._tensors), {}, []

    def deliver(self, payload: Tensors, known: set[int]) -> SharedTensorRefs:
        """Put a payload on the shelf for a worker, and note what the worker knows from now on.

        What many clients are sent is there once.
        """
        numbers = {name: self._number(tensor) for name, tensor in payload.items()}
        new = {i: self._tensors[i] for i in numbers.values() if i not in known}
        gone = frozenset(known - self._tensors.keys())
        known.difference_update(gone)
        known.update(new)
        return SharedTensorRefs(numbers, new, gone)

    def _number(self, tensor: Tensor) -> int:
        # By place, for a view of one model among several is a new object each time.
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if place not in self._placed:
            self._placed[place] = self._put(tensor)
            self._alive.append(tensor)  # so that its place is not given to another
        return self._placed[place]

    def _put(self, tensor: Tensor) -> int:
        for i in self._free:
            own = self._tensors[i]
            if own.shape == tensor.shape and own.dtype == tensor.dtype:
                self._free.remove(i)
                own.copy_(tensor)
                return i
        self._made += 1
        copy = tensor.detach().clone(memory_format=torch.contiguous_format)
        self._tensors[self._made] = share(copy)
        return self._made


class Reader:
    """A worker's side of the shelf."""

    def __init__(self) -> None:
        self._tensors: dict[int, Tensor] = {}

    def receive(self, delivery: SharedTensorRefs) -> Tensors:
        """Return the payload; its tensors hold until the next round."""
        for i in delivery.gone:
            del self._tensors[i]
        self._tensors |= delivery.new
        return {name: self._tensors[i] for name, i in delivery.numbers.items()}
