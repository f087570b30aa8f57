"""Noise for the statistics of a client: Laplace noise on counts and clipped sums.

A number in the declared range is mapped to -1/2 … 1/2, so one record changes the count by at most
1, the sum by at most 1/2 and the sum of squares by at most 1/4: 7/4 per column, and 7/4 times the
number of columns in all. Laplace noise of that size divided by epsilon on each of these numbers is
epsilon-differentially private (Dwork et al., 2006): whether a record is used or not changes the
probability of any outcome by at most a factor e^epsilon. The range comes from the user, never from
the data.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.data.preprocessing.moments import Moments

SENSITIVITY = 1.75
"""How much one record changes the three sums of one column, added up."""

_MIN_VARIANCE = 1e-6
"""The smallest variance, relative to the squared width of the range, that noise may leave."""


@dataclass(frozen=True)
class NoisySums:
    """Count, sum and sum of squares of numbers that are mapped to -1/2 … 1/2, with noise."""

    count: float = 0.0
    sum: float = 0.0
    squares: float = 0.0

    @staticmethod
    def of(
        values: NDArray[np.float64],
        low: float,
        high: float,
        noise_scale: float,
        rng: np.random.Generator,
    ) -> "NoisySums":
        """Return the sums of the values, which are moved into the range first, with noise."""
        unit = (np.clip(values, low, high) - low) / (high - low) - 0.5
        exact = np.array([len(unit), unit.sum(), np.square(unit).sum()])
        return NoisySums(*(exact + rng.laplace(0.0, noise_scale, 3)).tolist())

    def possible(self, samples: int) -> "NoisySums":
        """Return the sums moved to what a client with this many samples can have without noise."""
        count = min(max(self.count, 0.0), float(samples))
        total = min(max(self.sum, -count / 2), count / 2)
        return NoisySums(count, total, min(max(self.squares, 0.0), count / 4))

    @staticmethod
    def bounded(parts: "Sequence[NoisySums]", low: float, high: float) -> "list[NoisySums]":
        """Return the sums of several clients, with those of one that is unlike all others moved.

        See :meth:`Moments.bounded`; all other clients keep their sums.
        """
        sent = [part.moments(low, high) for part in parts]
        return [
            part if kept is own else part._with_moments(kept, low, high)
            for part, own, kept in zip(parts, sent, Moments.bounded(sent), strict=True)
        ]

    def _with_moments(self, moments: Moments, low: float, high: float) -> "NoisySums":
        mean = (moments.mean - low) / (high - low) - 0.5
        variance = (moments.std / (high - low)) ** 2
        return NoisySums(self.count, self.count * mean, self.count * (variance + mean**2))

    @staticmethod
    def merged(parts: "Sequence[NoisySums]") -> "NoisySums":
        """Add up the sums of all clients."""
        return NoisySums(
            float(sum(part.count for part in parts)),
            float(sum(part.sum for part in parts)),
            float(sum(part.squares for part in parts)),
        )

    def moments(self, low: float, high: float) -> Moments:
        """Return the moments that the sums imply, moved to what the range allows."""
        count = max(self.count, 1.0)
        mean = float(np.clip(self.sum / count, -0.5, 0.5))
        variance = float(np.clip(self.squares / count - mean**2, _MIN_VARIANCE, 0.25))
        width = high - low
        return Moments(count, low + (mean + 0.5) * width, count * variance * width**2)


def noise_scale(columns: int, epsilon: float) -> float:
    """Return the scale of the Laplace noise if a client releases this many columns."""
    return SENSITIVITY * columns / epsilon
