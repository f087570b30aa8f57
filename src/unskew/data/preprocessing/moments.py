"""Count, mean and squared deviations of a client's numbers, and of all clients' numbers together.

Sums are correctly rounded (``math.fsum``), so neither the order of rows nor the order of clients
changes a bit, and deviations are taken from the mean, so large numbers lose no digits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Moments:
    """The number of values, their mean, and the sum of their squared deviations from it."""

    count: float = 0
    mean: float = 0.0
    squares: float = 0.0

    @staticmethod
    def of(values: NDArray[np.float64]) -> "Moments":
        """Return the moments of finite values."""
        if not len(values):
            return Moments()
        mean = math.fsum(values.tolist()) / len(values)
        return Moments(len(values), mean, math.fsum(np.square(values - mean).tolist()))

    @staticmethod
    def merged(parts: "Sequence[Moments]") -> "Moments":
        """Return the moments of all clients' values together.

        The squares are those around the clients' means plus those of these means around the
        common one.
        """
        count = sum(part.count for part in parts)
        if not count:
            return Moments()
        mean = math.fsum(part.count * part.mean for part in parts) / count
        squares = math.fsum(
            part.squares + part.count * (part.mean - mean) ** 2 for part in parts if part.count
        )
        return Moments(count, mean, squares)

    @property
    def std(self) -> float:
        """The standard deviation of the values, not an estimate of a population's."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0

    @property
    def scale(self) -> float:
        """The number to divide by: the standard deviation, or 1 if the values are all the same."""
        is_constant = self.std <= 10 * np.finfo(np.float64).eps * abs(self.mean)
        return 1.0 if is_constant else self.std
