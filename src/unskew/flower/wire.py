"""The contents of messages between server and nodes: names of records, tensors, and refusals."""

import logging
import math
from collections.abc import Mapping
from io import BytesIO

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from unskew.composition.values import Tensors
from unskew.errors import UnskewError
from unskew.models.layout import Layout
from unskew.utils.printable import printable

_LOGGER = logging.getLogger("flwr")

ACTION = "unskew"
"""The name of unskew's message handlers; an app may have other handlers besides them."""
QUERY, TRAIN, EVALUATE = f"query.{ACTION}", f"train.{ACTION}", f"evaluate.{ACTION}"
PREPARE = f"query.{ACTION}_prepare"
"""The types of messages."""

ARRAYS, METRICS, REQUEST, NODE_INFO, REFUSAL = "arrays", "metrics", "request", "info", "refusal"
REPLY = "reply"
"""The names of the records in a message."""
SAMPLES = "num-examples"
"""Flower's name for the number of samples in a reply's metrics."""
MODEL = "model"
"""The name of the vector that is trained, in both directions."""
EXTRA = "extra/"
"""The prefix of the names of extras in a reply."""
SERVER_STATE = "server/"
"""The prefix of the names of the tensors of the server's state that a client needs."""

MAX_REASON = 300
"""The number of characters of a node's reason that are kept."""

StateVersion = tuple[int, int]
"""The stage and the round that produced a client's state."""


def log(level: int, message: str, *arguments: object, exc_info: Exception | None = None) -> None:
    """Write to Flower's log; escape sequences in what nodes send do not reach the terminal."""
    safe = [printable(each) if isinstance(each, str) else each for each in arguments]
    _LOGGER.log(level, message, *safe, exc_info=exc_info)


class Refusal(UnskewError):
    """A node refuses a request. The text is sent to the server and contains no data."""


class ArrayPacker:
    """Converts tensors to Flower arrays; a tensor sent to many clients is converted once."""

    def __init__(self) -> None:
        self._packed: dict[tuple[object, ...], Array] = {}
        self._alive: list[Tensor] = []

    def __call__(self, tensors: Tensors, mask: Tensor | None = None) -> ArrayRecord:
        """Pack tensors; of the model, pack only the coordinates that the mask selects."""
        return ArrayRecord(
            {
                name: self._array(tensor, mask if name == MODEL else None)
                for name, tensor in tensors.items()
            }
        )

    def _array(self, tensor: Tensor, mask: Tensor | None) -> Array:
        # Keyed by address, because a view of one model among several is a new object every time.
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), id(mask))
        if key not in self._packed:
            part = tensor if mask is None else tensor[mask]
            self._packed[key] = Array(part.detach().cpu().numpy())
            self._alive.append(tensor)  # so that its address is not reused
        return self._packed[key]


def to_arrays(tensors: Tensors) -> ArrayRecord:
    """Convert tensors to Flower arrays."""
    return ArrayPacker()(tensors)


def to_tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Convert Flower arrays to tensors that share no memory with them.

    Raise if one is not an array of numbers.
    """
    return {name: _to_tensor(name, array) for name, array in arrays.items()}


def _to_tensor(name: str, array: Array) -> Tensor:
    """Convert an array; what its header claims must have been sent before memory is allocated."""
    content, form = BytesIO(array.data), np.lib.format
    try:
        old = form.read_magic(content) == (1, 0)
        read_header = form.read_array_header_1_0 if old else form.read_array_header_2_0
        shape, is_fortran, dtype = read_header(content)
        sent = len(array.data) - content.tell()
        if dtype.kind not in "fiub" or math.prod(shape) * dtype.itemsize != sent:
            raise ValueError
        numbers = np.frombuffer(array.data, dtype, offset=content.tell())
        return torch.from_numpy(np.array(numbers.reshape(shape, order="F" if is_fortran else "C")))
    except Exception:  # NumPy's parser of headers raises many kinds
        raise UnskewError(f"{name}: must be an array of numbers in NumPy's format") from None


def named_tensors(model: Tensor, layout: Layout) -> Tensors:
    """Split a flat vector into the tensors of a module's state."""
    return {entry.name: model[entry.slice].view(entry.shape).to(entry.dtype) for entry in layout}
