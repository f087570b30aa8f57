"""Tests of all differences to one method, on many tables of results at once.

A table has one row per method and one column per seed; NaN means that there is no value. The test
of a pair combines two: the moderated test of :mod:`unskew.stats.moderated`, corrected for the
number of pairs, and the paired t-test of the pair alone, not corrected. Both must reject. The first
provides the power; the second limits the error where one method is much noisier than the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from unskew.stats.moderated import Array, VarianceModel, fit_variances

CALIBRATION = 1.2
"""p-values of three or more methods are multiplied by this.

It keeps the family-wise error below 6 % where variances differ much; ``benchmarks/verdicts.py``.
"""

_RESOLUTION = 1e-9
"""Differences that vary by less than this share of the largest value are constant."""

_FLOOR = 0.01
"""A pair's own variance counts as at least this share of the median over all pairs."""


@dataclass(frozen=True)
class Differences:
    """The differences of methods to a reference: one row per table, one column per method.

    ``variance`` is that of a single difference, NaN with one seed; ``model`` is None for tables
    of two methods and for those without any variance, which have only the paired t-test.
    """

    mean: Array
    variance: Array
    seeds: Array
    model: VarianceModel | None
    own_variance: Array

    def tails(self, distance: Array) -> tuple[Array, Array]:
        """Return the one-sided tails of both tests: moderated, and paired t-test alone."""
        own = np.maximum(self.seeds - 1, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = distance / np.sqrt(self.own_variance / self.seeds)
        alone = np.where(np.isnan(t), np.where(distance > 0, 0.0, 0.5), student.sf(t, own))
        # Constant differences: the sign test, whose smallest p-value is two over 2 ** seeds.
        signs = np.where(distance > 0, 0.5**self.seeds, np.where(distance < 0, 1.0, 0.5))
        alone = np.where(self.own_variance > 0, alone, signs)
        alone = np.where(self.seeds > 1, alone, np.nan)
        if self.model is None:
            return alone, alone
        return CALIBRATION * self.model.tail(distance, self.variance, self.seeds), (
            CALIBRATION * alone
        )


def all_variances(values: Array) -> tuple[Array, Array]:
    """Return the variances of all pairs of rows and their numbers of common seeds.

    Both are square matrices per table. Missing values must be in the same places in all tables.
    """
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    shown = known.astype(float)
    count = shown @ shown.swapaxes(1, 2)
    sums = filled @ shown.swapaxes(1, 2)
    squares = (filled**2) @ shown.swapaxes(1, 2)
    mean = (sums - sums.swapaxes(1, 2)) / np.maximum(count, 1)
    square = squares + squares.swapaxes(1, 2) - 2 * filled @ filled.swapaxes(1, 2)
    # One common seed has no variance: rounding would make it infinite instead of undefined.
    variance = np.where(count > 1, (square - count * mean**2) / np.maximum(count - 1, 1), np.nan)
    scale = np.abs(filled).max(axis=(1, 2), keepdims=True)
    # The squares cancel to about 1e-16 of the largest.
    negligible = variance <= np.maximum((_RESOLUTION * scale) ** 2, 1e-14 * scale**2)
    return np.where(negligible, 0.0, variance), count


def fit_model(variance: Array, count: Array) -> VarianceModel | None:
    """Fit the model to the matrices of :func:`all_variances`; None if there is nothing to pool."""
    methods = variance.shape[1]
    first, second = np.triu_indices(methods, 1)
    pairs = np.where(np.isnan(variance), 0.0, variance)[:, first, second]
    if methods < 3 or not pairs.any(axis=1).all():
        return None
    return fit_variances(pairs, count[0, first, second], methods)


def differences_to(
    values: Array,
    reference: int,
    variance: Array,
    count: Array,
    model: VarianceModel | None,
    rivals: Sequence[int] | None = None,
) -> Differences:
    """Return the differences of other methods to one, given the variances of all pairs.

    ``rivals`` are the other methods' positions, by default those of all.
    """
    everyone = [method for method in range(values.shape[1]) if method != reference]
    others = everyone if rivals is None else list(rivals)
    gaps = values[:, others] - values[:, [reference]]
    counted = count[0, reference, others]
    own = variance[:, reference, others]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.nansum(gaps, axis=2) / counted
    if model is None:
        return Differences(mean, own, counted, None, own)
    first, second = np.triu_indices(values.shape[1], 1)
    floor = _FLOOR * np.nanmedian(variance[:, first, second], axis=1)[:, None]
    noise = _noise_of(values, reference, everyone)
    return Differences(mean, own, counted, model.raised_to(noise), np.maximum(own, floor))


def _noise_of(values: Array, reference: int, others: list[int]) -> Array:
    """Return the variance of a method around the median of the others, seed by seed."""
    sums, counts = np.nansum(values, axis=2, keepdims=True), (~np.isnan(values)).sum(2)[..., None]
    centered = values - sums / np.maximum(counts, 1)
    rest = centered[:, others]
    everywhere = ~np.isnan(rest).all(axis=(0, 1)) & ~np.isnan(centered[0, reference])
    if everywhere.sum() < 2:
        return np.zeros(len(values))
    gaps = centered[:, reference, everywhere] - np.nanmedian(rest[:, :, everywhere], axis=1)
    # Few seeds often underestimate a variance; the factor is 1.5 with three and 1.1 with five.
    found: Array = gaps.var(axis=1, ddof=1) * (1 + 2 / (gaps.shape[1] - 1) ** 2)
    return found


def holm_factors(p: Array) -> Array:
    """Return by what Holm's step-down method multiplies each p-value; NaN p-values do not count."""
    order = np.argsort(p, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(p.shape[1]), p.shape), 1)
    factors: Array = (~np.isnan(p)).sum(1)[:, None] - rank
    return np.maximum(factors, 1).astype(float)


def holm(p: Array) -> Array:
    """Return p-values corrected by Holm's method, row by row."""
    order = np.argsort(p, axis=1, kind="stable")
    scaled = np.take_along_axis(p * holm_factors(p), order, 1)
    corrected = np.empty_like(p)
    np.put_along_axis(corrected, order, np.fmax.accumulate(scaled, axis=1), 1)
    return np.where(np.isnan(p), np.nan, np.minimum(corrected, 1.0))
