"""Verdicts while seeds are added in waves, with the error rate of a single verdict.

Every look at the same methods is another chance to be wrong, so each look gets a share of the error
rate (alpha spending), and the shares add up to the whole. An answer, once given, stays. The pairs
that are known to differ make later tests easier, as in Holm's method: until the first false
difference none of them is truly zero, so the correction is for at least as many pairs as are, and
the probability that a look gives a first false answer is at most its share of the error rate.

Everything here is a function of the values: after an interruption, :func:`judge_waves` repeats all
looks and comes to the same answers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unskew.errors import UnskewError
from unskew.stats.decisions import Settled
from unskew.stats.judging import (
    ERROR_RATE,
    MARGIN,
    Answers,
    Pair,
    check_settings,
    default_baseline,
    judge_rivals,
    possible_best,
    table_of,
)

FIRST_WAVE, MAX_SEEDS = 5, 30
"""The seeds of the first wave, and those of the last one."""

_GROWTH = 1.5
"""By what factor a wave increases the number of seeds, about."""


@dataclass(frozen=True)
class WaveAnswers:
    """What is known after a wave, and what the next one trains.

    ``answers`` are those so far: a settled pair as it was when its answer was given, with
    the seeds of that look. Its p-values and intervals hold for all looks together. ``looks`` is the
    number of looks so far. ``next_methods`` are the methods that the next wave trains, the
    baseline first; there is none if everything is known, or if no wave is left. ``is_decided``
    says whether everything is known.
    """

    answers: Answers
    waves: tuple[int, ...]
    looks: int
    next_methods: tuple[str, ...]
    is_decided: bool

    @property
    def next_seeds(self) -> int | None:
        """The number of seeds of those methods after the next wave; None if there is none."""
        return self.waves[self.looks] if self.next_methods else None


def plan_waves(max_seeds: int = MAX_SEEDS, first: int = FIRST_WAVE) -> tuple[int, ...]:
    """Return the numbers of seeds after each wave, up to ``max_seeds``.

    >>> plan_waves(30)
    (5, 8, 12, 19, 30)
    >>> plan_waves(6)
    (6,)
    """
    if first < 2:
        raise UnskewError(f"first must be 2 seeds or more (got {first})")
    if max_seeds < first:
        raise UnskewError(f"max_seeds must be at least {first} (got {max_seeds})")
    steps = max(0, round(math.log(max_seeds / first) / math.log(_GROWTH)))
    if not steps:
        return (max_seeds,)
    ratio = max_seeds / first
    return tuple(round(first * ratio ** (step / steps)) for step in range(steps + 1))


def shares(waves: Sequence[int]) -> tuple[float, ...]:
    """Return the share of the error rate that each look may spend; they add up to 1."""
    return tuple(1 / len(waves) for _ in waves)


def judge_waves(
    values: Mapping[str, Sequence[float]],
    waves: Sequence[int],
    baseline: str | None = None,
    margin: float = MARGIN,
    error_rate: float = ERROR_RATE,
    *,
    best: bool = False,
) -> WaveAnswers:
    """Judge methods after each wave of seeds, with the error rate of a single verdict.

    ``values`` has one number for each seed that has been trained so far, NaN for the seeds without
    a run; ``waves`` are the numbers of seeds at each look, all planned ones, from
    :func:`plan_waves`. They must not change between waves. The looks for which there are seeds are
    repeated one by one; the values of a method after its answer do not count.

    The next wave trains the methods that are undecided. With ``best``, it also trains those that
    may be the best, until one is left or all that are left are equivalent to each other.

    >>> rows = {"fedavg": [70.1, 68.9, 71.0, 70.2, 69.5], "new": [75.3, 74.2, 76.1, 75.0, 74.4]}
    >>> wave = judge_waves(rows, plan_waves(30))
    >>> wave.answers.pairs[0].answer, wave.next_methods
    ('better', ())
    """
    names, seeds = list(values), table_of(values).shape[2]
    chosen = default_baseline(names) if baseline is None else baseline
    check_settings(names, chosen, margin, error_rate)
    plan = tuple(waves)
    if not plan or list(plan) != sorted(set(plan)) or plan[0] < 2:
        raise UnskewError(f"waves must be increasing numbers of seeds, from 2 (got {list(plan)})")
    if seeds < plan[0]:
        raise UnskewError(f"values: the first look needs {plan[0]} seeds (got {seeds})")
    pairs: dict[str, Pair] = {}
    candidates, stopped = tuple(names), dict[str, int]()
    for look, (wave, share) in enumerate(zip(plan, shares(plan), strict=True)):
        cut = _until(values, wave, stopped)
        answered = [m for m, pair in pairs.items() if pair.answer != "undecided"]
        rivals = [name for name in names if name != chosen and name not in answered]
        equivalent = sum(pairs[method].answer == "equivalent" for method in answered)
        settled = Settled(np.array([len(answered) - equivalent]), np.array([equivalent]))
        found = judge_rivals(cut, chosen, rivals, margin, error_rate, 1 / share, settled)
        pairs |= {pair.method: pair for pair in found}
        left = [name for name in possible_best(cut, error_rate, 1 / share) if name in candidates]
        gains = {chosen: 0.0} | {method: pair.difference for method, pair in pairs.items()}
        # Means over different seeds cannot be compared, but differences to the baseline can.
        candidates = tuple(sorted(left, key=lambda name: -gains[name]))
        unsettled = {m for m, pair in pairs.items() if pair.answer == "undecided"}
        if best:
            known = _all_equivalent(cut, candidates, margin, error_rate, 1 / share)
            unsettled |= set() if known else set(candidates)
        unsettled -= {name for name in names if not np.isfinite(cut[name]).any()}
        last = look + 1
        if not unsettled or last == len(plan) or plan[last] > seeds:
            break
        stopped |= {name: wave for name in names if name not in (*unsettled, chosen, *stopped)}
    answers = Answers(chosen, tuple(pairs[m] for m in pairs), candidates, margin, error_rate)
    ordered = [chosen, *(name for name in names if name in unsettled and name != chosen)]
    next_methods = tuple(ordered) if unsettled and last < len(plan) else ()
    return WaveAnswers(answers, plan, last, next_methods, not unsettled)


def _until(
    values: Mapping[str, Sequence[float]], seeds: int, stopped: Mapping[str, int]
) -> dict[str, list[float]]:
    """Return the values that a look may use: NaN after the last wave of a method."""
    return {
        name: [
            value if place < stopped.get(name, seeds) else math.nan
            for place, value in enumerate(row[:seeds])
        ]
        for name, row in values.items()
    }


def _all_equivalent(
    values: Mapping[str, Sequence[float]],
    methods: Sequence[str],
    margin: float,
    error_rate: float,
    looks: float,
) -> bool:
    """Return whether all pairs of some methods are equivalent; one method alone is.

    Which methods are left depends on the values, so the correction is for all of them.
    """
    others = len(values) - 1
    return all(
        pair.answer == "equivalent"
        for i, method in enumerate(methods[:-1])
        for pair in judge_rivals(
            values, method, methods[i + 1 :], margin, error_rate,
            looks * others / len(methods[i + 1 :]),
        )
    )  # fmt: skip
