"""Is a method better than another, or is the difference within noise? Paired over seeds.

Two methods that share a seed share the data's deal, the first weights and the order of samples, so
their difference is taken seed by seed and the paired t-test asks whether its mean is zero. With the
few seeds that runs allow it is the only common test that can answer: Wilcoxon's cannot go below
``2 / 2**n``, which for five seeds is 0.06. Differences that are equal to the last digit have no
deviation to judge them by; the sign test, whose smallest value is that same ``2 / 2**n``, judges
them instead.

The leader is picked after looking at the figures. What may go wrong by that is that the method that
is really best is called behind: each of the others might beat it by chance. So the p-values of the
leader's comparisons are multiplied by their number (Bonferroni's correction), which keeps the
chance of that below ``LEVEL``, however many methods there are.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import binomtest, ttest_1samp
from scipy.stats import t as student

LEVEL = 0.05
"""The chance that is taken of calling noise a difference."""

BySeed = Mapping[int, float]
"""A method's figure for each seed."""


@dataclass(frozen=True)
class Difference:
    """One method's figure less another's, over the seeds both have.

    ``low`` and ``high`` bound the mean difference with a confidence of 95 %, for this pair alone;
    ``p`` is corrected for the number of comparisons. All are NaN with fewer than two seeds.
    """

    first: str
    second: str
    seeds: int
    mean: float
    low: float
    high: float
    p: float

    @property
    def is_tie(self) -> bool:
        """Whether both had the same figure with every seed."""
        return self.mean == self.low == self.high == 0 or (self.seeds == 1 and self.mean == 0)

    @property
    def is_significant(self) -> bool:
        """Whether the difference is more than noise."""
        return self.p < LEVEL


def lead(leader: str, figures: Mapping[str, BySeed]) -> list[Difference]:
    """Compare one method with each of the others, in their order."""
    others = [method for method in figures if method != leader]
    found = [_difference(leader, other, figures[leader], figures[other]) for other in others]
    tests = sum(not math.isnan(difference.p) for difference in found)
    return [replace(difference, p=_times(difference.p, tests)) for difference in found]


def paired_p(values: Sequence[float]) -> float:
    """Return how likely differences as large as these are by chance alone, two-sided."""
    mean, error = _mean_and_error(values)
    if len(values) < 2 or math.isnan(mean):
        return math.nan
    if mean == 0:
        return 1.0
    if error <= 1e-9 * abs(mean):
        return float(binomtest(len(values), len(values)).pvalue)
    return float(ttest_1samp(values, 0).pvalue)


def _difference(one: str, two: str, first: BySeed, second: BySeed) -> Difference:
    seeds = sorted(set(first) & set(second))
    values = [first[seed] - second[seed] for seed in seeds]
    mean, error = _mean_and_error(values)
    reach = math.nan
    if len(values) > 1:
        reach = float(student.ppf(0.975, len(values) - 1)) * error
    return Difference(one, two, len(seeds), mean, mean - reach, mean + reach, paired_p(values))


def _times(p: float, tests: int) -> float:
    return p if math.isnan(p) else min(1.0, tests * p)


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error, NaN where there are too few values for it."""
    if not values:
        return math.nan, math.nan
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(np.mean(values)), float(error)
