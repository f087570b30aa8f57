"""A quantile sketch: a few weighted values that stand for many, with a bound on their ranks.

A client sorts its n values and divides them into at most ``size`` runs of nearly equal length. Each
run is represented by its middle value, with the length of the run as its weight. For any threshold,
all runs but one lie wholly on one side of it, so the estimated number of values below it is wrong
by at most half the length of that run, rounded down: the ``rank_error``. Sketches are merged by
uniting their values, and their rank errors add up, whatever the order.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIZE = 200
"""The number of values that a client sends, by default."""


@dataclass(frozen=True, eq=False)
class QuantileSketch:
    """Values in increasing order with the number of values that each stands for."""

    values: NDArray[np.float64]
    weights: NDArray[np.int64]
    rank_error: int = 0
    """By how much the rank of any threshold may be wrong."""

    @staticmethod
    def of(values: NDArray[np.float64], size: int = SIZE) -> "QuantileSketch":
        """Return the sketch of finite values, in any order."""
        ordered, count = np.sort(values), len(values)
        runs = min(count, size)
        bounds = np.arange(runs + 1) * count // max(runs, 1)
        weights = np.diff(bounds)
        middle = ordered[bounds[:-1] + weights // 2] if runs else ordered
        return QuantileSketch(middle, weights, int(weights.max(initial=0)) // 2)

    @staticmethod
    def merged(sketches: "Iterable[QuantileSketch]") -> "QuantileSketch":
        """Unite sketches; the result does not depend on their order."""
        parts = list(sketches)
        values = np.concatenate([part.values for part in parts] or [np.empty(0)])
        weights = np.concatenate([part.weights for part in parts] or [np.empty(0, np.int64)])
        distinct, index = np.unique(values, return_inverse=True)
        totals = np.bincount(index, weights, minlength=len(distinct)).astype(np.int64)
        return QuantileSketch(distinct, totals, sum(part.rank_error for part in parts))

    def bounded(self, low: float, high: float) -> "QuantileSketch":
        """Return the sketch with its values moved into a range."""
        return QuantileSketch(np.clip(self.values, low, high), self.weights, self.rank_error)

    @property
    def count(self) -> int:
        """The number of values that the sketch stands for."""
        return int(self.weights.sum())

    def quantile(self, share: float) -> float:
        """Return the smallest value with at least ``share`` of all values at or below it.

        At most ``share * count + rank_error`` values are below it, and at least ``share * count -
        rank_error`` are at or below it.
        """
        if not self.count:
            return np.nan
        ranks = np.cumsum(self.weights)
        place = int(np.searchsorted(ranks, share * self.count, side="left"))
        return float(self.values[min(place, len(self.values) - 1)])

    def to_json(self) -> dict[str, Any]:
        """Return what is sent; the rank error follows from the weights."""
        return {"values": self.values.tolist(), "weights": self.weights.tolist()}

    @staticmethod
    def from_json(plain: dict[str, Any]) -> "QuantileSketch":
        """Read what one client has sent."""
        weights = np.array(plain["weights"], np.int64)
        values = np.array(plain["values"], np.float64)
        return QuantileSketch(values, weights, int(weights.max(initial=0)) // 2)
