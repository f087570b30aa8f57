"""Mean ranks of methods over federations, with Friedman's test and Nemenyi's critical difference.

Two mean ranks differ significantly if they differ by more than the critical difference (Demšar,
2006). Federations count equally, however large the differences in them are.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import chi2, rankdata, studentized_range

from unskew.errors import UnskewError
from unskew.stats.judging import ERROR_RATE
from unskew.stats.moderated import Array

MIN_FEDERATIONS = 4
"""With fewer federations, ranks say next to nothing."""


@dataclass(frozen=True)
class Ranks:
    """The mean rank of each method, the best first; 1 is the best possible.

    ``each`` has the ranks of every federation, in the same order of methods. ``p`` is that of
    Friedman's test of equal ranks. ``groups`` are the largest sets of methods with neighbouring
    ranks, two or more each, none of which differ by more than the critical difference.
    """

    means: Mapping[str, float]
    each: Mapping[str, tuple[float, ...]]
    p: float
    critical_difference: float
    groups: tuple[tuple[str, ...], ...]


def rank_methods(values: Mapping[str, Sequence[float]], error_rate: float = ERROR_RATE) -> Ranks:
    """Rank methods in every federation and test the mean ranks.

    ``values`` has one number per federation for each method, higher is better. Equal numbers share
    their mean rank.

    >>> ranks = rank_methods({"a": [3, 2, 3, 3], "b": [2, 3, 2, 2], "c": [1, 1, 1, 1]})
    >>> dict(ranks.means), round(ranks.critical_difference, 2), ranks.groups
    ({'a': 1.25, 'b': 1.75, 'c': 3.0}, 1.66, (('a', 'b'), ('b', 'c')))
    """
    table = np.array([list(row) for row in values.values()], dtype=np.float64)
    if table.ndim != 2 or len(table) < 2 or not table.size or np.isnan(table).any():
        raise UnskewError("values: ranks need two or more methods, with a number per federation")
    ranks: Array = rankdata(-table, axis=0)
    order = np.argsort(ranks.mean(1), kind="stable")
    names = list(values)
    means = {names[i]: float(ranks[i].mean()) for i in order}
    each = {names[i]: tuple(ranks[i].tolist()) for i in order}
    difference = critical_difference(len(names), table.shape[1], error_rate)
    return Ranks(means, each, _friedman(ranks), difference, _groups(means, difference))


def critical_difference(methods: int, federations: int, error_rate: float = ERROR_RATE) -> float:
    """Return by how much mean ranks must differ to be significantly different (Nemenyi's test).

    >>> round(critical_difference(5, 10), 2)
    1.93
    """
    return _quantile(methods, error_rate) * math.sqrt(methods * (methods + 1) / (6 * federations))


def federations_needed(methods: int, error_rate: float = ERROR_RATE) -> int:
    """Return with how many federations ranks can differ significantly, at least four.

    >>> federations_needed(5)
    4
    """
    spread = _quantile(methods, error_rate) / (methods - 1)
    return max(MIN_FEDERATIONS, math.floor(spread**2 * methods * (methods + 1) / 6) + 1)


@cache
def _quantile(methods: int, error_rate: float) -> float:
    return float(studentized_range.isf(error_rate, methods, np.inf)) / math.sqrt(2)


def _friedman(ranks: Array) -> float:
    """Return the p-value of equal mean ranks, corrected for ties; 1 if all ranks are tied."""
    methods, federations = ranks.shape
    # The variance of ranks without ties is that of 1 to k; ties make it smaller.
    between = federations * ((ranks.mean(1) - (methods + 1) / 2) ** 2).sum()
    within = ((ranks - (methods + 1) / 2) ** 2).sum() / (federations * (methods - 1))
    return float(chi2.sf(between / within, methods - 1)) if within > 0 else 1.0


def _groups(means: Mapping[str, float], difference: float) -> tuple[tuple[str, ...], ...]:
    """Return the groups of sorted methods, without those that are part of another group."""
    names, found, last = list(means), [], 0
    for first, name in enumerate(names):
        end = first + sum(means[other] - means[name] <= difference for other in names[first:])
        if end > max(last, first + 1):
            found.append(tuple(names[first:end]))
        last = max(last, end)
    return tuple(found)
