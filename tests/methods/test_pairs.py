"""All pairs of methods train or are refused with a reason that names both."""

import pytest

from pairs import BEGIN, END, PAGE, SPECS, no_effect, outcome, pair, table, without_spec
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


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_two_parts_decides_nothing_about_refusal(name):
    for other in NAMES:
        assert bool(pair(name, other).refusal) == bool(pair(other, name).refusal), other


@pytest.mark.long
def test_the_table_in_the_docs_is_up_to_date():
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert written == table()
