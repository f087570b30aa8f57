"""What the server accepts of the values that clients send besides their models.

A part declares each of them beside its code, in :attr:`~unskew.composition.parts.Part.receives`;
:mod:`unskew.engine.upload_checks` checks all of them before any aggregation rule sees them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Size = Literal["classes", "shared", "features"]
"""A length that depends on the run: the number of classes, of the coordinates that are both trained
and sent, or of the inputs of the head."""
KnownQuantity = Literal["samples", "effective step", "squared movement"]
"""What the server knows of a client: its number of samples, and the effective step of its round."""
Bound = float | tuple[float, ...]
"""One bound for all numbers of a value, or one for each."""

_TOLERANCE = 1e-4
"""Relative difference up to which numbers count as equal; clients send float32."""


@dataclass(frozen=True)
class Value:
    """The shape, type and range of one value; a client that sends anything else is rejected.

    The default is one finite float32 number, at most 1000 times as large as the cohort's median.
    """

    shape: tuple[int | Size, ...] | None = ()
    """Its shape; None means any."""
    dtype: torch.dtype | None = torch.float32
    """Its type; None means any."""
    low: Bound = -math.inf
    high: Bound = math.inf
    may_be_undefined: bool = False
    """Whether NaN and infinities have a meaning."""
    times: float | None = 1000.0
    """How many times larger than the cohort's median its norm may be; None: not compared. Of one or
    two clients, it is compared with earlier rounds."""
    floor: float = 0.0
    """Medians below this count as this, for values that honest clients bring close to zero."""
    only_relative: bool = False
    """Whether that of a single client is accepted: nothing but its share depends on it."""
    sums_to: KnownQuantity | None = None
    """What the server knows already and its numbers must sum to."""
    at_most: KnownQuantity | None = None
    """What the server knows already and its numbers may not exceed in sum."""
    optional: bool = False
    """Whether it is sent only in some rounds or stages, and then by all clients."""

    def fault(
        self, tensor: Tensor, sizes: Mapping[Size, int], known: Mapping[KnownQuantity, float]
    ) -> str | None:
        """Return what is wrong with one client's value; None if nothing is."""
        if self.dtype is not None and tensor.dtype != self.dtype:
            return f"is of {tensor.dtype}, not {self.dtype}"
        shape = tuple(tensor.shape)
        if self.shape is not None:
            shape = tuple(sizes[n] if isinstance(n, str) else n for n in self.shape)
        if tuple(tensor.shape) != shape:
            return f"has shape {tuple(tensor.shape)}, not {shape}"
        return self._fault_of_numbers(tensor, known) if tensor.numel() else None

    def _fault_of_numbers(self, tensor: Tensor, known: Mapping[KnownQuantity, float]) -> str | None:
        # Reductions, so that no copy of a large value is made.
        if not self.may_be_undefined and not math.isfinite(norm_of(tensor)):
            return "has infinite or undefined numbers, or overflows"
        if self._is_outside(tensor):
            return f"is outside the range from {_text(self.low)} to {_text(self.high)}"
        if self.sums_to is not None:
            total, expected = float(tensor.double().sum()), known[self.sums_to]
            if not math.isclose(total, expected, rel_tol=_TOLERANCE):
                return f"sums to {total:g}, and its {self.sums_to} is {expected:g}"
        if self.at_most is not None:
            total, largest = float(tensor.double().sum()), known[self.at_most]
            if total > largest * (1 + _TOLERANCE):
                return f"is {total:g}, and its {self.at_most} is {largest:g}"
        return None

    def _is_outside(self, tensor: Tensor) -> bool:
        if isinstance(self.low, tuple) or isinstance(self.high, tuple):
            low, high = (torch.tensor(bound).double() for bound in (self.low, self.high))
            return bool(((tensor.double() < low) | (tensor.double() > high)).any())
        if self.low == -math.inf and self.high == math.inf:
            return False
        least, largest = (float(each) for each in tensor.aminmax())
        return least < self.low or largest > self.high


def norm_of(tensor: Tensor) -> float:
    """Return the Euclidean norm of any tensor."""
    floats = tensor if tensor.is_floating_point() else tensor.double()
    return float(torch.linalg.vector_norm(floats))


def loss_value(*, low: float = -math.inf) -> Value:
    """Return the declaration of a loss, which honest clients can bring close to zero."""
    return Value(low=low, floor=1.0)


TRAIN_LOSS = Value(dtype=torch.float64, floor=1.0, only_relative=True, optional=True)
TRAIN_ACCURACY = Value(dtype=torch.float64, low=0.0, high=1.0, times=None)
LABEL_COUNTS = Value(("classes",), torch.int64, low=0.0, times=None, sums_to="samples")


def _text(bound: Bound) -> str:
    return ", ".join(f"{b:g}" for b in bound) if isinstance(bound, tuple) else f"{bound:g}"
