"""Which methods are better than a baseline, which are equivalent to it, and which may be best."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unskew.errors import UnskewError
from unskew.stats.decisions import Settled, decide, half_widths, is_beaten, seeds_needed
from unskew.stats.moderated import Array
from unskew.stats.pairwise import (
    all_variances,
    differences_to,
    fit_model,
    noise_of_methods,
)

BySeed = Mapping[int, float]
"""A method's score for each seed."""

Answer = Literal["better", "worse", "equivalent", "undecided"]

ERROR_RATE = 0.05
"""The probability of any false answer among all of them: the family-wise error rate."""

MARGIN = 1.0
"""The smallest difference that matters, in percentage points of accuracy."""


@dataclass(frozen=True)
class Pair:
    """A method against the baseline; a positive difference is better.

    ``low`` and ``high`` are the simultaneous interval of all differences. ``p`` is that of no
    difference, corrected for the number of methods. ``seeds_needed`` is the number of seeds that
    would probably decide an undecided pair, None if that is unknown or above 1000. ``seeds`` is the
    number of seeds that both methods have.
    """

    method: str
    answer: Answer
    difference: float
    low: float
    high: float
    p: float
    seeds_needed: int | None
    seeds: int

    @property
    def is_identical(self) -> bool:
        """Whether the method has the baseline's value with every seed."""
        return self.answer == "equivalent" and self.difference == self.low == self.high == 0


@dataclass(frozen=True)
class Answers:
    """The answers of :func:`judge`: one pair per rival, and the methods that may be the best.

    ``best`` holds the truly best method with probability 1 - ``error_rate``; the method with
    the highest mean is its first.
    """

    baseline: str
    pairs: tuple[Pair, ...]
    best: tuple[str, ...]
    margin: float
    error_rate: float

    def pair(self, method: str) -> Pair:
        """Return the pair of a method."""
        return next(pair for pair in self.pairs if pair.method == method)


def judge(
    values: Mapping[str, Sequence[float]],
    baseline: str | None = None,
    margin: float = MARGIN,
    error_rate: float = ERROR_RATE,
) -> Answers:
    """Compare methods with a baseline over seeds.

    ``values`` has one number per seed for each method, higher is better, NaN for none; values with
    the same position share a seed. ``baseline`` is by default FedAvg, or the first method.
    ``margin`` is the largest difference that does not matter, in the units of the values, and
    ``error_rate`` the probability of any false answer. See ``docs/verdicts.md`` for the test.

    >>> answers = judge({"fedavg": [70.1, 68.9, 71.0], "new": [75.3, 74.2, 76.1]})
    >>> answers.pairs[0].answer, round(answers.pairs[0].difference, 2)
    ('better', 5.2)
    """
    names = list(values)
    if not names:
        raise UnskewError("values: there is no method to judge")
    chosen = default_baseline(names) if baseline is None else baseline
    rivals = [name for name in names if name != chosen]
    pairs = judge_rivals(values, chosen, rivals, margin, error_rate)
    return Answers(chosen, pairs, possible_best(values, error_rate), margin, error_rate)


def judge_rivals(
    values: Mapping[str, Sequence[float]],
    reference: str,
    rivals: Sequence[str],
    margin: float = MARGIN,
    error_rate: float = ERROR_RATE,
    looks: float = 1.0,
    settled: Settled | None = None,
) -> tuple[Pair, ...]:
    """Compare some methods with a reference, and correct for their number alone.

    The other methods help to estimate the variances of differences. ``looks`` multiplies p-values
    if the same methods are judged several times, and ``settled`` counts the pairs that have been
    answered before (:mod:`unskew.stats.sequential`).
    """
    table, names = table_of(values), list(values)
    check_settings(names, reference, margin, error_rate)
    variance, count = all_variances(table)
    # The single pair of a single look is tested by the paired t-test alone.
    model = fit_model(variance, count) if len(rivals) > 1 or looks > 1 else None
    places = [names.index(rival) for rival in rivals]
    place, noise = names.index(reference), noise_of_methods(table)
    differences = differences_to(table, place, variance, count, model, noise, places)
    estimate = differences.variance
    if model is not None:
        # What few seeds may have missed makes tests more careful, not estimates.
        unbiased = model.raised_to(noise[:, place], np.array([np.inf]))
        estimate = unbiased.variance(estimate, differences.seeds)
    decisions = decide(differences, margin, looks, settled)
    done = 0 if settled is None else int(settled.different[0] + settled.equivalent[0])
    share = error_rate / looks * len(rivals) / max(1, len(rivals) + done)
    widths = half_widths(differences, share)[0]
    needed = seeds_needed(differences, estimate, margin, share)
    pairs = []
    for i, method in enumerate(rivals):
        mean, width = float(differences.mean[0, i]), float(widths[i])
        answer: Answer = "undecided"
        if decisions.is_equivalent(error_rate)[0, i]:
            answer = "equivalent"
            if differences.is_identical[0, i]:
                width = 0.0
        elif decisions.is_different(error_rate)[0, i]:
            answer = "better" if mean > 0 else "worse"
        low, high = _interval(answer, mean, width, margin)
        p, open_ = float(decisions.p[0, i]), answer == "undecided"
        seeds = int(differences.seeds[0, i])
        pairs.append(Pair(method, answer, mean, low, high, p, needed[i] if open_ else None, seeds))
    return tuple(pairs)


def check_settings(names: Sequence[str], baseline: str, margin: float, error_rate: float) -> None:
    """Raise an error unless the settings of :func:`judge` are possible."""
    if not 0 < error_rate < 1:
        raise UnskewError(f"error_rate must be between 0 and 1 (got {error_rate:g})")
    if not margin >= 0:
        raise UnskewError(f"margin must be 0 or more (got {margin:g})")
    if baseline not in names:
        raise UnskewError(f"baseline: {baseline!r} is none of the methods ({', '.join(names)})")


def by_position(scores: Mapping[str, BySeed]) -> dict[str, list[float]]:
    """Return scores by seed as :func:`judge` takes them: in the same order, NaN for none."""
    seeds = sorted({seed for by_seed in scores.values() for seed in by_seed})
    return {
        method: [by_seed.get(seed, math.nan) for seed in seeds]
        for method, by_seed in scores.items()
    }


def default_baseline(methods: Sequence[str]) -> str:
    """Return FedAvg if it is among the methods, otherwise the first."""
    return next((name for name in methods if name.lower() == "fedavg"), methods[0])


def table_of(values: Mapping[str, Sequence[float]]) -> Array:
    """Return the values as one table, methods x seeds, around its mean."""
    if not values:
        raise UnskewError("values: there is no method to judge")
    lengths = {name: len(row) for name, row in values.items()}
    seeds = max(lengths.values())
    short = next((name for name, length in lengths.items() if length < seeds), None)
    if short is not None:
        raise UnskewError(
            f"values: {short!r} has {lengths[short]} numbers and another method {seeds}; give one "
            "per seed, NaN where there is none"
        )
    table = np.array([list(row) for row in values.values()], dtype=np.float64)
    table[~np.isfinite(table)] = np.nan
    known = table[~np.isnan(table)]
    return (table - (np.median(known) if known.size else 0.0))[None]


def _interval(answer: Answer, mean: float, width: float, margin: float) -> tuple[float, float]:
    """Return the interval; an answer that Holm's method gives excludes what it rejects."""
    low, high = mean - width, mean + width
    if answer == "better":
        low = max(low, 0.0)
    elif answer == "worse":
        high = min(high, 0.0)
    elif answer == "equivalent":
        low, high = max(low, -margin), min(high, margin)
    return low, high


def possible_best(
    values: Mapping[str, Sequence[float]], error_rate: float = ERROR_RATE, looks: float = 1.0
) -> tuple[str, ...]:
    """Return the methods that no other method is significantly better than, the best mean first.

    ``looks`` is that of :func:`judge_rivals`.
    """
    table, names = table_of(values), list(values)
    variance, count = all_variances(table)
    model, noise = fit_model(variance, count), noise_of_methods(table)
    means = {
        name: float(np.nanmean(row)) if not np.isnan(row).all() else math.nan
        for name, row in zip(names, table[0], strict=True)
    }
    measured = [name for name in names if not math.isnan(means[name])]
    kept = []
    for name in measured:
        gaps = differences_to(table, names.index(name), variance, count, model, noise)
        if not is_beaten(gaps, error_rate, looks)[0]:
            kept.append(name)
    return tuple(sorted(kept, key=lambda name: -means[name]))
