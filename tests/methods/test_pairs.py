"""All pairs of methods train or are refused with a reason that names both."""

from itertools import combinations, pairwise

import pytest

from pairs import (
    BEGIN,
    END,
    PAGE,
    SPECS,
    composes,
    in_order,
    no_effect,
    outcome,
    pair,
    table,
    without_spec,
)
from unskew.methods import METHODS

NAMES = sorted(METHODS)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_pair_trains_or_is_refused_with_a_reason_that_names_both(name):
    alone = outcome(SPECS[name])
    assert not alone.refusal
    problems = []
    for other in NAMES:
        result = pair(name, other)
        if result.refusal:
            reason = without_spec(result.refusal)
            if name not in reason or other not in reason:
                problems.append(f"{other}: {result.refusal}")
        elif not result.is_finite:
            problems.append(f"{other}: not finite")
        elif result.equals(alone) != bool(no_effect(other, name)):
            expected = no_effect(other, name) or "a change"
            problems.append(f"{other}: expected {expected}")
    assert not problems


def test_the_order_of_two_parts_decides_nothing_about_composition():
    pairs = combinations(NAMES, 2)
    assert [(a, b) for a, b in pairs if composes(a, b) != composes(b, a)] == []


@pytest.mark.long
@pytest.mark.parametrize(("first", "second"), list(pairwise([*NAMES, NAMES[0]])))
def test_the_order_of_two_parts_decides_nothing_about_training(first, second):
    """For neighbours in the alphabet, so that every method is in two pairs."""
    one, other = in_order(first, second), in_order(second, first)
    assert bool(one.refusal) == bool(other.refusal)
    assert one.is_finite
    assert other.is_finite


@pytest.mark.long
def test_the_table_in_the_docs_is_up_to_date():
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert written == table()
