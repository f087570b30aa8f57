"""Decisions about all pairs with one method: better, worse, equivalent or undecided.

Every pair has two p-values, that of no difference and that of a difference of at least the margin
(two one-sided tests). The smaller of the two decides, and is what Holm's method orders: a pair that
is decided in either way makes the tests of the others easier.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from unskew.stats.moderated import Array
from unskew.stats.pairwise import CALIBRATION, Differences, holm_factors

MAX_SEEDS = 1000
"""A number of seeds above this is not named."""

_POWER = 0.842
"""The normal quantile of a probability of 80 % to decide."""


@dataclass(frozen=True)
class Decisions:
    """The corrected p-values of a difference and of equivalence, one column per method.

    That of equivalence is 1 if there is more evidence of a difference.
    """

    p: Array
    p_equivalent: Array

    def is_equivalent(self, level: float) -> NDArray[np.bool_]:
        """Return which differences are smaller than the margin."""
        return self.p_equivalent < level

    def is_different(self, level: float) -> NDArray[np.bool_]:
        """Return which differences are not zero, without being equivalent."""
        return (self.p < level) & ~self.is_equivalent(level)


def decide(differences: Differences, margin: float, looks: float = 1.0) -> Decisions:
    """Test every difference, corrected for the number of pairs and of looks."""
    size = np.abs(differences.mean)
    moderated, alone = (2 * tail for tail in differences.tails(size))
    inside, inside_alone = differences.tails(margin - size)
    smaller = np.fmin(moderated, inside)
    factors = holm_factors(smaller)
    order = np.argsort(smaller, axis=1, kind="stable")
    steps = np.fmax.accumulate(np.take_along_axis(smaller * factors, order, 1), axis=1)
    before = np.zeros_like(smaller)
    shifted = np.concatenate([np.zeros((len(steps), 1)), steps[:, :-1]], axis=1)
    np.put_along_axis(before, order, shifted, 1)

    def corrected(p: Array, own: Array) -> Array:
        found = np.maximum(np.fmax(before, 0.0), np.maximum(factors * p, own))
        found = np.minimum(1.0, looks * found)
        return np.where(differences.seeds > 1, found, np.nan)

    identical = (size == 0) & ~(differences.variance > 0) & (differences.seeds > 0)
    equivalent = np.where(inside <= moderated, corrected(inside, inside_alone), 1.0)
    return Decisions(
        np.where(identical, 1.0, corrected(moderated, alone)), np.where(identical, 0.0, equivalent)
    )


def half_widths(differences: Differences, level: float) -> Array:
    """Return half the widths of intervals that hold all differences with probability 1 - level."""
    pairs = int((differences.seeds > 1).sum())

    def excess(distance: Array) -> NDArray[np.bool_]:
        moderated, alone = differences.tails(distance)
        return (2 * pairs * moderated > level) | (2 * alone > level)

    found = _root(excess, np.abs(differences.mean))
    return np.where(differences.seeds > 1, found, np.nan)


def _root(excess: Callable[[Array], NDArray[np.bool_]], start: Array) -> Array:
    """Return the smallest distance per pair that is not in excess, by bisection of its logarithm.

    Infinity where there is none, as in the sign test of few seeds.
    """
    low, high = np.full(start.shape, -60.0), np.full(start.shape, 60.0)
    if not start.size:
        return start
    never = excess(np.exp(high))
    for _ in range(50):
        middle = (low + high) / 2
        above = excess(np.exp(middle))
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(never, np.inf, np.exp(high))


def seeds_needed(differences: Differences, margin: float, level: float) -> list[int | None]:
    """Return how many seeds would decide each pair with a probability of 80 %; None if too many.

    The observed difference and variance are taken for the true ones.
    """
    pooled = differences.model is not None
    variance = (
        differences.model.variance(differences.variance, differences.seeds)
        if differences.model is not None
        else differences.variance
    )
    pairs = max(1, int((differences.seeds > 1).sum()))
    share = level / pairs / (CALIBRATION if pooled else 1)
    found: list[int | None] = []
    for mean, spread, count in zip(
        differences.mean[0], variance[0], differences.seeds, strict=True
    ):
        seeds = np.arange(count + 1, MAX_SEEDS + 1)
        dof = (seeds - 1) * (2 if pooled else 1)
        if not spread > 0 or not len(seeds):
            found.append(None)
            continue
        unit = np.sqrt(seeds / spread)
        different = abs(mean) * unit > student.isf(share / 2, dof) + _POWER
        within = (margin - abs(mean)) * unit > student.isf(share, dof) + _POWER
        decided = np.flatnonzero(different | within)
        found.append(int(seeds[decided[0]]) if len(decided) else None)
    return found
