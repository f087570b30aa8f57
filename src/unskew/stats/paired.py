"""Tests whether one method is significantly better than another, paired over seeds.

Two methods with the same seed have the same partition of the data, the same initial weights and
the same order of samples, so their difference is computed per seed and a paired t-test checks
whether its mean is zero. With the small number of seeds that runs allow it is the only common test
that can be significant: the smallest p-value of Wilcoxon's test is ``2 / 2**n``, which for five
seeds is 0.06. If all differences are equal, their deviation is zero and the t-test is undefined;
the sign test, whose smallest p-value is also ``2 / 2**n``, is used instead.

The leader is selected by its results, so the truly best method may be called significantly worse
if any of the others beats it by chance. The p-values of the leader's comparisons are therefore
multiplied by their number (Bonferroni correction), which keeps the probability of this error below
``ALPHA`` for any number of methods.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import binomtest, ttest_1samp
from scipy.stats import t as student

ALPHA = 0.05
"""The significance level."""

BySeed = Mapping[int, float]
"""A method's score for each seed."""


@dataclass(frozen=True)
class Difference:
    """The score of ``first`` minus that of ``second``, over the seeds both have.

    ``low`` and ``high`` are the 95 % confidence interval of the mean difference, for this pair
    alone; ``p`` is corrected for the number of comparisons. All are NaN with fewer than two seeds.
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
        """Whether both methods have the same score with every seed."""
        return self.mean == self.low == self.high == 0 or (self.seeds == 1 and self.mean == 0)

    @property
    def is_significant(self) -> bool:
        """Whether the mean difference is significantly different from zero."""
        return self.p < ALPHA


def compare_with_others(method: str, scores: Mapping[str, BySeed]) -> list[Difference]:
    """Return the differences of one method to each of the others, in their order."""
    others = [other for other in scores if other != method]
    found = [_difference(method, other, scores[method], scores[other]) for other in others]
    tests = sum(not math.isnan(difference.p) for difference in found)
    return [replace(difference, p=_corrected(difference.p, tests)) for difference in found]


def paired_p(values: Sequence[float]) -> float:
    """Return the two-sided p-value of the hypothesis that the mean difference is zero."""
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
    margin = math.nan
    if len(values) > 1:
        margin = float(student.ppf(0.975, len(values) - 1)) * error
    return Difference(one, two, len(seeds), mean, mean - margin, mean + margin, paired_p(values))


def _corrected(p: float, tests: int) -> float:
    return p if math.isnan(p) else min(1.0, tests * p)


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error, NaN if there are too few values."""
    if not values:
        return math.nan, math.nan
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(np.mean(values)), float(error)
