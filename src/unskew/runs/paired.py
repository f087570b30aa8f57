"""Is a method better than another, or is the difference within noise? Paired over seeds.

Two methods that share a seed share the data's deal, the first weights and the order of samples, so
their difference is taken seed by seed and the paired t-test asks whether its mean is zero. With the
few seeds that runs allow it is the only common test that can answer: Wilcoxon's cannot go below
``2 / 2**n``, which for five seeds is 0.06. Differences that are equal to the last digit have no
deviation to judge them by; the sign test, whose smallest value is that same ``2 / 2**n``, judges
them instead.

The leader is picked after looking at the figures, so every pair of methods counts as a test that
was made: Holm's correction over all pairs keeps the chance of one false claim at ``LEVEL``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import t as student

LEVEL = 0.05
"""The chance that is taken of calling noise a difference."""

BySeed = Mapping[int, float]
"""A method's figure for each seed."""


@dataclass(frozen=True)
class Difference:
    """One method's figure less another's, over the seeds both have.

    ``low`` and ``high`` bound the mean difference with a confidence of 95 %, for this pair alone;
    ``p`` is corrected for the number of pairs. All of them are NaN with fewer than two seeds.
    """

    first: str
    second: str
    seeds: int
    mean: float
    low: float
    high: float
    p: float

    @property
    def is_real(self) -> bool:
        """Whether the difference is more than noise."""
        return self.p < LEVEL


def differences(figures: Mapping[str, BySeed]) -> dict[tuple[str, str], Difference]:
    """Compare every pair of methods; the result has both orders of each pair."""
    pairs = list(combinations(figures, 2))
    found = [_difference(one, two, figures[one], figures[two]) for one, two in pairs]
    corrected = holm([difference.p for difference in found])
    result = {}
    for difference, p in zip(found, corrected, strict=True):
        one, two = difference.first, difference.second
        low, high = difference.low, difference.high
        result[one, two] = Difference(one, two, difference.seeds, difference.mean, low, high, p)
        result[two, one] = Difference(two, one, difference.seeds, -difference.mean, -high, -low, p)
    return result


def paired_p(values: Sequence[float]) -> float:
    """Return how likely differences as large as these are by chance alone, two-sided."""
    mean, error = _mean_and_error(values)
    if len(values) < 2 or math.isnan(mean):
        return math.nan
    if mean == 0:
        return 1.0
    if error <= 1e-9 * abs(mean):
        return 2.0 ** (1 - len(values))
    return float(2 * student.sf(abs(mean) / error, len(values) - 1))


def holm(values: Sequence[float]) -> list[float]:
    """Correct the p-values of several tests by Holm's step-down; NaN is no test."""
    order = sorted((p, i) for i, p in enumerate(values) if not math.isnan(p))
    corrected, so_far = [math.nan] * len(values), 0.0
    for rank, (p, i) in enumerate(order):
        so_far = max(so_far, min(1.0, (len(order) - rank) * p))
        corrected[i] = so_far
    return corrected


def _difference(one: str, two: str, first: BySeed, second: BySeed) -> Difference:
    seeds = sorted(set(first) & set(second))
    values = [first[seed] - second[seed] for seed in seeds]
    mean, error = _mean_and_error(values)
    reach = math.nan
    if len(values) > 1:
        reach = float(student.ppf(0.975, len(values) - 1)) * error
    return Difference(one, two, len(seeds), mean, mean - reach, mean + reach, paired_p(values))


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error, NaN where there are too few values for it."""
    if not values:
        return math.nan, math.nan
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(np.mean(values)), float(error)
