"""Count, mean and squared deviations of a client's numbers, and of all clients' numbers together.

Sums are correctly rounded (``math.fsum``), so neither the order of rows nor the order of clients
changes a bit, and deviations are taken from the mean, so large numbers lose no digits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

_FARTHEST = 2.0
"""A client's values may spread this many times as far from the median as any other client's."""


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

    @staticmethod
    def bounded(parts: "Sequence[Moments]") -> "list[Moments]":
        """Return the moments of several clients, of which one may have sent anything.

        Clients are compared by how far their values spread around the median of their means. The
        one that spreads farthest is moved towards that median until it spreads twice as far as the
        next one. So a single client changes the common mean by less than the others' own spread,
        and clients within that limit keep all their bits. Of one or two clients, nothing tells
        which one is wrong.
        """
        center, limit = _limit(parts)
        spreads = [part._spread(center) for part in parts]
        return [
            part if spread <= limit else part._moved(center, limit / spread)
            for part, spread in zip(parts, spreads, strict=True)
        ]

    @staticmethod
    def range_of(parts: "Sequence[Moments]") -> tuple[float, float]:
        """Return the range in which :meth:`bounded` leaves the values of a client."""
        center, limit = _limit(parts)
        return center - limit, center + limit

    def _spread(self, center: float) -> float:
        """Return the root of the mean squared distance of the values from a point."""
        return math.hypot(self.std, self.mean - center) if self.count else 0.0

    def _moved(self, center: float, share: float) -> "Moments":
        mean = center + (self.mean - center) * share
        return Moments(self.count, mean, self.squares * share * share)

    @property
    def std(self) -> float:
        """The standard deviation of the values, not an estimate of a population's."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0

    @property
    def scale(self) -> float:
        """The number to divide by: the standard deviation, or 1 if the values are all the same."""
        is_constant = self.std <= 10 * np.finfo(np.float64).eps * abs(self.mean)
        return 1.0 if is_constant else self.std


def _limit(parts: Sequence[Moments]) -> tuple[float, float]:
    """Return the median of the clients' means, and how far a client's values may spread from it."""
    known = [part for part in parts if part.count]
    if len(known) < 3:
        return 0.0, math.inf
    center = median(part.mean for part in known)
    second = sorted(part._spread(center) for part in known)[-2]
    # Where all clients but one have the same value, nothing says how far values may spread.
    return center, _FARTHEST * second if second > 0 else math.inf
