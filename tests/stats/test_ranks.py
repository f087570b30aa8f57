"""Mean ranks: numbers checked by hand, and scipy's test of Friedman."""

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import friedmanchisquare

from unskew.errors import UnskewError
from unskew.stats import ranks
from unskew.stats.ranks import critical_difference, federations_needed, rank_methods

TABLES = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).integers(0, 4, size=(4, 6)).astype(float)
)


def test_critical_differences_of_the_table_of_demsar():
    """q is 2.728 for 5 methods: 2.728 * sqrt(5 * 6 / 60) = 1.93. For 2 it is the normal 1.960."""
    assert critical_difference(5, 10) == pytest.approx(2.728 * (5 * 6 / 60) ** 0.5, abs=1e-3)
    assert critical_difference(2, 6) == pytest.approx(1.960 * (2 * 3 / 36) ** 0.5, abs=1e-3)
    assert critical_difference(10, 8) == pytest.approx(3.164 * (10 * 11 / 48) ** 0.5, abs=1e-3)


def test_ties_share_their_mean_rank():
    """Ranks 1.5, 1.5, 3 and 1, 2.5, 2.5: the means are 1.25, 2 and 2.75."""
    ranks = rank_methods({"c": [0, 1], "b": [5, 1], "a": [5, 9]})
    assert list(ranks.means.items()) == [("a", 1.25), ("b", 2.0), ("c", 2.75)]
    assert ranks.each == {"a": (1.5, 1.0), "b": (1.5, 2.5), "c": (3.0, 2.5)}


def test_groups_hold_neighbours_within_the_critical_difference():
    """With 12 federations and 3 methods the critical difference is 2.343 * sqrt(1 / 6) = 0.957."""
    always = {"a": [3.0] * 12, "b": [2.0] * 12, "c": [1.0] * 12}
    assert rank_methods(always).groups == ()
    often = {**always, "b": [4.0] * 3 + [2.0] * 9}  # ranks 1.25, 1.75, 3
    assert rank_methods(often).groups == (("a", "b"),)
    equal = {name: [1.0] * 12 for name in "abc"}
    assert rank_methods(equal).groups == (("a", "b", "c"),)
    assert rank_methods(equal).p == 1


def test_a_group_within_another_is_not_listed():
    """Ranks 1, 2, 3 and a critical difference of 2.343 * sqrt(2 / 4) = 1.66: two groups of two."""
    ranks = rank_methods({"a": [3] * 4, "b": [2] * 4, "c": [1] * 4})
    assert ranks.groups == (("a", "b"), ("b", "c"))


@given(TABLES)
def test_the_test_is_that_of_scipy(table):
    ranks = rank_methods({str(i): row for i, row in enumerate(table)})
    if (table == table[0]).all():
        assert ranks.p == 1
    else:
        assert ranks.p == pytest.approx(friedmanchisquare(*table).pvalue, rel=1e-9)
    assert sum(ranks.means.values()) == pytest.approx(1 + 2 + 3 + 4)


@given(TABLES, st.permutations(range(6)))
def test_the_order_of_federations_does_not_matter(table, order):
    first = rank_methods({str(i): row for i, row in enumerate(table)})
    second = rank_methods({str(i): row[order] for i, row in enumerate(table)})
    assert second.means == pytest.approx(first.means)


@pytest.mark.parametrize("methods", [2, 3, 5, 12, 44])
def test_enough_federations_make_a_significant_difference_possible(methods):
    needed = federations_needed(methods)
    assert needed >= 4
    assert critical_difference(methods, needed) < methods - 1
    assert needed == 4 or critical_difference(methods, needed - 1) >= methods - 1


def test_tables_without_ranks_are_refused():
    for values in ({}, {"a": [1.0]}, {"a": [1.0], "b": [np.nan]}, {"a": [], "b": []}):
        with pytest.raises(UnskewError, match="two or more methods"):
            rank_methods(values)


def test_the_examples_of_the_docstrings():
    assert doctest.testmod(ranks).failed == 0
