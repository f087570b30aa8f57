"""Tests of all differences to one method, on many tables of results at once.

A table has one row per method and one column per seed; NaN means that there is no value. The test
of a pair combines two: the moderated test of :mod:`unskew.stats.moderated`, corrected for the
number of pairs, and a t-test with the noise of the noisier of the two methods, not corrected. Both
must reject. The first provides the power; the second limits the error where the variances of the
others say little about that of a pair. For a method that is much noisier than most they say
nothing, so its second test is corrected for the number of pairs too. If many methods are, training
may collapse with some seeds, and a method that collapsed with all of them would look quiet: no
p-value is below the probability of that.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri, stdtr

from unskew.stats.moderated import Array, Flags, VarianceModel, fit_variances

CALIBRATION = 1.1
"""p-values of three or more methods are multiplied by this.

It keeps the family-wise error below 6 % where variances differ much; ``benchmarks/verdicts.py``.
"""

_RESOLUTION = 1e-9
"""Differences that vary by less than this share of the largest value are constant."""

_FLOOR = 0.01
"""A pair's own variance counts as at least this share of the median over all pairs."""

_BY_CHANCE = 0.002
"""A method is much noisier than most if an equal variance has less than this probability."""

_UNLIKELY = 0.01
"""The probability of a tie with every seed, over all pairs, below which it is not chance."""


@dataclass(frozen=True)
class Differences:
    """The differences of methods to a reference: one row per table, one column per method.

    ``seeds`` is the number of seeds that both have; without two there is no test.
    ``variance`` is that of a single difference, NaN with one seed; ``model`` is None for tables
    of two methods and for those without any variance, which have only the paired t-test.
    ``own_variance`` is that of the t-test of the pair alone, and ``is_noisy`` marks the methods
    that are much noisier than most. No tail is below ``least``, the probability that a method
    collapsed with every seed. ``rounding`` is half of the smallest step by which a mean
    difference can change: if values are rounded, a tail begins that much earlier (the correction
    for continuity). ``is_identical`` marks the methods with the reference's value with every seed,
    unless that is likely among rounded values.
    """

    mean: Array
    variance: Array
    seeds: Array
    model: VarianceModel | None
    own_variance: Array
    least: Array
    rounding: Array
    is_noisy: Flags
    is_identical: Flags

    def tails(self, distance: Array, asked: Flags | None = None) -> tuple[Array, Array]:
        """Return the one-sided tails of both tests: moderated, and t-test of the pair alone.

        The first is 1 where it is not ``asked`` for; computing it takes time.
        """
        alone = self.alone(distance)
        if self.model is None:
            return alone, alone
        moderated = CALIBRATION * self.model.tail(
            distance - self.rounding, self.variance, self.seeds, asked
        )
        moderated = np.maximum(moderated, self.least)
        return np.where(self.is_noisy, np.maximum(moderated, alone), moderated), alone

    def alone(self, distance: Array) -> Array:
        """Return the one-sided tail of the t-test of each pair alone."""
        distance = distance - self.rounding
        own = np.maximum(self.seeds - 1, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = distance / np.sqrt(self.own_variance / self.seeds)
        tail = np.where(np.isnan(t), np.where(distance > 0, 0.0, 0.5), stdtr(own, -t))
        # Constant differences: the sign test, whose smallest p-value is two over 2 ** seeds.
        signs = np.where(distance > 0, 0.5**self.seeds, np.where(distance < 0, 1.0, 0.5))
        tail = np.where(self.own_variance > 0, tail, signs)
        tail = np.where(self.seeds > 1, tail, np.nan)
        return tail if self.model is None else CALIBRATION * tail


def all_variances(values: Array) -> tuple[Array, Array]:
    """Return the variances of all pairs of rows and their numbers of common seeds.

    Both are square matrices per table.
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
    return fit_variances(pairs, count[:, first, second], methods)


def noise_of_methods(values: Array) -> Array:
    """Return the variance of each method around the median of the others, seed by seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # methods or seeds without values
        centered = values - np.nanmean(values, axis=2, keepdims=True)
        gaps = centered - _medians_of_others(centered)
        found: Array = np.nanvar(gaps, axis=2, ddof=1)
    return np.nan_to_num(found)


def _medians_of_others(values: Array) -> Array:
    """Return, for each method and seed, the median over the other methods; NaN values are none."""
    order = np.argsort(values, axis=1)  # NaN values are the last
    rank, places = np.empty_like(order), np.arange(values.shape[1])[None, :, None]
    np.put_along_axis(rank, order, np.broadcast_to(places, order.shape), 1)
    ordered, known = np.take_along_axis(values, order, 1), ~np.isnan(values)
    number = known.sum(axis=1, keepdims=True) - known  # of others
    middle = [np.maximum(place, 0) for place in ((number - 1) // 2, number // 2)]
    # Without a method, those that are ranked above it move down by one.
    below, above = (
        np.take_along_axis(ordered, np.minimum(place + (place >= rank), len(places[0]) - 1), 1)
        for place in middle
    )
    return np.where(number > 0, (below + above) / 2, np.nan)


def differences_to(
    values: Array,
    reference: int,
    variance: Array,
    count: Array,
    model: VarianceModel | None,
    noise: Array,
    rivals: Sequence[int] | None = None,
) -> Differences:
    """Return the differences of other methods to one, given the variances of all pairs.

    ``noise`` is that of all methods, from :func:`noise_of_methods`. ``rivals`` are the other
    methods' positions, by default those of all.
    """
    everyone = [method for method in range(values.shape[1]) if method != reference]
    others = everyone if rivals is None else list(rivals)
    gaps = values[:, others] - values[:, [reference]]
    counted = count[:, reference, others]
    own = variance[:, reference, others]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.nansum(gaps, axis=2) / counted
    equal = (mean == 0) & ~(own > 0) & (counted > 0)
    if model is None:
        none = np.zeros_like(mean)
        return Differences(mean, own, counted, None, own, none, none, none.astype(bool), equal)
    # How often other methods tie with the reference, which happens if values are rounded.
    others_known = ~np.isnan(gaps) & ~equal[:, :, None]
    ties = ((gaps == 0) & others_known).sum((1, 2)) / np.maximum(others_known.sum((1, 2)), 1)
    equal &= len(others) * ties[:, None] ** counted < _UNLIKELY
    first, second = np.triu_indices(values.shape[1], 1)
    floor = _FLOOR * np.nanmedian(variance[:, first, second], axis=1)[:, None]
    noisier = np.maximum(np.maximum(noise[:, [reference]], noise[:, others]), floor)
    noisy = _is_much_noisier(noise, np.diagonal(count, axis1=1, axis2=2))
    is_noisy = noisy[:, others]
    noisier = np.where(is_noisy, np.maximum(noisier, own), noisier)
    # Each of the noisy methods may have collapsed with one of its seeds.
    least = (noisy.mean(axis=1, keepdims=True) / np.maximum(counted, 1)) ** counted
    raised = model.raised_to(noise[:, reference], count[:, reference, reference])
    rounding = _step(values - values[:, [reference]])[:, None] / 2 / np.maximum(counted, 1)
    return Differences(mean, own, counted, raised, noisier, least, rounding, is_noisy, equal)


def _is_much_noisier(noise: Array, seeds: Array) -> Flags:
    """Return which methods are much noisier than most: 9 times the median with three seeds.

    The more seeds, the less: 5 times with five, 3 times with ten.
    """
    dof = np.maximum(seeds - 1, 1)
    much = chdtri(dof, _BY_CHANCE) / chdtri(dof, 0.5)
    found: Flags = noise > much * np.median(noise, axis=1, keepdims=True)
    return found


def _step(gaps: Array) -> Array:
    """Return the smallest distance between two different values of a table; 0 if all are equal.

    It is the unit of rounded values, and next to nothing for others.
    """
    ordered = np.sort(gaps.reshape(len(gaps), -1), axis=1)
    steps = np.diff(ordered, axis=1)
    scale = np.nanmax(np.abs(ordered), axis=1, keepdims=True)
    smallest = np.where(steps > _RESOLUTION * scale, steps, np.inf).min(axis=1)
    return np.where(np.isfinite(smallest), smallest, 0.0)
