"""Which tensors are on the device that trains, and how they get there.

On an accelerator a transfer costs more than a step of a small network, so samples are moved once
and stay there: a step sends only the numbers of the samples in its batch. The global model stays
there until the server has another one. Models of the vectorised runner stay there too if all parts
of the method work on any device; the hooks of other parts see the CPU's tensors only.
"""

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.data.columns import Columns

_MAX_SHARE = 0.5
"""The largest share of a device's free memory that samples may fill."""

Samples = tuple[Tensor, Tensor]

_moved: WeakKeyDictionary[Columns, dict[torch.device, Samples]] = WeakKeyDictionary()


def is_accelerator(device: torch.device) -> bool:
    """Return whether tensors have to be moved to a device."""
    return device.type != "cpu"


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; on the CPU it is the tensor itself."""
    return tensor.to(device)


def samples_on(device: torch.device, columns: Columns) -> Samples:
    """Return all samples on a device, as features and targets.

    They are moved once, and removed with the federation. If they would fill more than half of the
    device's free memory they stay on the CPU, and every batch is moved.
    """
    on_devices = _moved.setdefault(columns, {})
    if device not in on_devices:
        tensors = to_tensor(columns.x), to_tensor(columns.y)
        if sum(each.nbytes for each in tensors) <= _MAX_SHARE * free_memory(device):
            tensors = to_device(tensors[0], device), to_device(tensors[1], device)
        on_devices[device] = tensors
    return on_devices[device]


class ModelOnDevice:
    """The model that was moved last: a global model is evaluated, and then trained by clients."""

    def __init__(self) -> None:
        self._model: Tensor | None = None
        self._version = -1
        self._copy = torch.empty(0)

    def of(self, model: Tensor, device: torch.device) -> Tensor:
        """Return a model on the run's device, to be read; on the CPU it is the model itself."""
        if not is_accelerator(device):
            return model
        if self._model is not model or self._version != model._version:
            self._model, self._version = model, model._version
            self._copy = to_device(model, device)
        return self._copy


def free_memory(device: torch.device) -> float:
    """Return the free bytes of a device's memory, or infinity where they are not known."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return float("inf")


def take(samples: Tensor, rows: Tensor, device: torch.device) -> Tensor:
    """Return rows of samples on a device; where the samples are there, only ``rows`` is moved.

    A run has one device besides the CPU. Its name may differ from that of its tensors: those of
    ``mps`` are on ``mps:0``.
    """
    if is_accelerator(samples.device) == is_accelerator(device):
        return samples.index_select(0, to_device(rows, device))
    return to_device(samples.index_select(0, rows), device)


def to_tensor(array: NDArray[Any]) -> Tensor:
    """Wrap an array without copying it; copy only if it is read-only or of another type."""
    if array.dtype not in _TORCH_DTYPES:
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)


_TORCH_DTYPES = (np.uint8, np.int8, np.int16, np.int32, np.int64, np.float32)
