"""Decisions about all pairs with one method: better, worse, equivalent or undecided.

Every pair has two p-values, that of no difference and that of a difference of at least the margin
(two one-sided tests). The smaller of the two decides. Holm's method corrects the first: a pair that
differs makes the tests of the others easier. An equivalent pair does not, because its difference
may well be zero, so the second is multiplied by the number of pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from unskew.stats.moderated import Array
from unskew.stats.pairwise import CALIBRATION, Differences

MAX_SEEDS = 1000
"""A number of seeds above this is not named."""

_POWER = 0.842
"""The normal quantile of a probability of 80 % to decide."""


@dataclass(frozen=True)
class Settled:
    """How many pairs have been answered at earlier looks, per table."""

    different: NDArray[np.int64]
    equivalent: NDArray[np.int64]


@dataclass(frozen=True)
class Decisions:
    """The corrected p-values of a difference and of equivalence, one column per method.

    That of equivalence is 1 if there is more evidence of a difference.
    """

    p: Array
    p_equivalent: Array

    def is_equivalent(self, error_rate: float) -> NDArray[np.bool_]:
        """Return which differences are smaller than the margin."""
        return self.p_equivalent < error_rate

    def is_different(self, error_rate: float) -> NDArray[np.bool_]:
        """Return which differences are not zero, without being equivalent."""
        return (self.p < error_rate) & ~self.is_equivalent(error_rate)


def decide(
    differences: Differences,
    margin: float,
    looks: float = 1.0,
    settled: Settled | None = None,
    exact_below: float = np.inf,
) -> Decisions:
    """Test every difference, corrected for the number of pairs and of looks.

    ``settled`` is how many other pairs have been answered at earlier looks. Only p-values below
    ``exact_below`` are exact; to compute no others saves time.
    """
    size, tested = np.abs(differences.mean), differences.seeds > 1
    asked = None
    if np.isfinite(exact_below):
        below = exact_below / looks
        asked = (2 * differences.alone(size) < below) | (differences.alone(margin - size) < below)
    moderated, alone = (2 * tail for tail in differences.tails(size, asked))
    inside, inside_alone = differences.tails(margin - size, asked)
    pairs = tested.sum(axis=1)
    if settled is not None:
        pairs = pairs + settled.equivalent
    p = _step_down(np.where(tested, moderated, np.nan), alone, pairs)
    if settled is not None:
        pairs = pairs + settled.different
    p_equivalent = np.maximum(pairs[:, None] * inside, inside_alone)

    def corrected(found: Array) -> Array:
        return np.where(tested, np.minimum(1.0, looks * found), np.nan)

    equivalent = np.where(inside <= moderated, corrected(p_equivalent), 1.0)
    identical = differences.is_identical
    return Decisions(np.where(identical, 1.0, corrected(p)), np.where(identical, 0.0, equivalent))


def _step_down(p: Array, alone: Array, pairs: NDArray[np.int64]) -> Array:
    """Correct p-values by Holm's method; each must also be significant alone, uncorrected.

    The next pair is always the one that needs the smallest error rate, so a pair that is not
    significant alone does not keep others from being tested, nor does it help them.
    """
    left, found = p.copy(), np.full_like(p, np.nan)
    tables, needed_so_far = np.arange(len(p)), np.zeros(len(p))
    for step in range(p.shape[1]):
        needed = np.maximum(np.maximum(pairs - step, 1)[:, None] * left, alone)
        next_ = np.argmin(np.where(np.isnan(needed), np.inf, needed), axis=1)
        is_left = ~np.isnan(needed[tables, next_])  # pairs without a test have no p-value
        rows, columns = tables[is_left], next_[is_left]
        needed_so_far[rows] = np.maximum(needed_so_far[rows], needed[rows, columns])
        found[rows, columns], left[rows, columns] = needed_so_far[rows], np.nan
    return found


def is_beaten(differences: Differences, error_rate: float, looks: float = 1.0) -> NDArray[np.bool_]:
    """Return, per table, whether any method is significantly better than the reference.

    Only the truly best method can be called beaten wrongly, so the correction is for its rivals
    alone.
    """
    moderated, alone = differences.tails(differences.mean)
    rivals = np.maximum(1, (differences.seeds > 1).sum(axis=1, keepdims=True))
    found = (looks * np.fmax(rivals * moderated, alone) < error_rate) & (differences.seeds > 1)
    return np.asarray(found.any(axis=1))


def half_widths(differences: Differences, error_rate: float) -> Array:
    """Return half the widths of the simultaneous intervals of all differences."""
    found = _root(
        lambda distance: is_near(differences, distance, error_rate), np.abs(differences.mean)
    )
    return np.where(differences.seeds > 1, found, np.nan)


def is_near(differences: Differences, distance: Array, error_rate: float) -> NDArray[np.bool_]:
    """Return which distances from the mean no test rejects, corrected for the number of pairs."""
    pairs = (differences.seeds > 1).sum(axis=1, keepdims=True)
    moderated, alone = differences.tails(distance)
    near: NDArray[np.bool_] = (2 * pairs * moderated > error_rate) | (2 * alone > error_rate)
    return near


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


def seeds_needed(
    differences: Differences, variance: Array, margin: float, error_rate: float
) -> list[int | None]:
    """Return how many seeds would decide each pair with a probability of 80 %; None if too many.

    The observed differences and the estimated variances are taken for the true ones.
    """
    pooled = differences.model is not None
    pairs = max(1, int((differences.seeds > 1).sum()))
    share = error_rate / pairs / (CALIBRATION if pooled else 1)
    found: list[int | None] = []
    for mean, spread, count in zip(
        differences.mean[0], variance[0], differences.seeds[0], strict=True
    ):
        seeds = np.arange(count + 1, MAX_SEEDS + 1)
        dof = (seeds - 1) * (2 if pooled else 1)
        if not spread > 0 or not len(seeds):
            found.append(None)
            continue
        unit = np.sqrt(seeds / spread)
        different = abs(mean) * unit > _POWER - stdtrit(dof, share / 2)
        within = (margin - abs(mean)) * unit > _POWER - stdtrit(dof, share)
        decided = np.flatnonzero(different | within)
        found.append(int(seeds[decided[0]]) if len(decided) else None)
    return found
