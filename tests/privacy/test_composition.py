"""Releases together cost what the accountant says, and never more than the sum of their parts."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.errors import UnskewError
from unskew.privacy import Composition, PrivacyLimit, spent

pytest.importorskip("opacus")

DELTA = 1e-5
STEPS = st.tuples(
    st.sampled_from([0.7, 1.0, 4.0, 50.0]), st.sampled_from([0.01, 0.3, 1.0]), st.integers(1, 300)
)
PURE = st.floats(0.01, 3.0)


def composed(steps, pure):
    total = Composition()
    for each in steps:
        total = total.plus_steps(*each)
    for each in pure:
        total = total.plus_pure(each)
    return total


def test_steps_of_one_kind_add_up_to_those_of_a_run():
    rounds = composed([(2.0, 0.1, 7)] * 13, [])
    assert rounds.epsilon(DELTA) == pytest.approx(spent(2.0, 0.1, 91, DELTA), rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.lists(STEPS, max_size=4), st.lists(PURE, max_size=4))
def test_a_composition_costs_at_least_each_part_and_at_most_their_sum(steps, pure):
    total = composed(steps, pure).epsilon(DELTA)
    parts = [spent(*each, DELTA) for each in steps]
    # Opacus's conversion to epsilon can be slightly negative at the largest orders.
    assert total <= sum(parts) + sum(pure) + 0.02 * len(parts)
    assert total >= max([*parts, 0.0]) * (1 - 1e-9)
    if steps == []:
        assert total == pytest.approx(sum(pure))


def test_many_small_releases_beside_steps_cost_less_than_their_sum():
    total = composed([(4.0, 0.1, 10)], [0.02] * 300)
    assert total.epsilon(DELTA) < 2.5 < spent(4.0, 0.1, 10, DELTA) + 300 * 0.02


def test_without_a_delta_there_are_no_steps():
    assert composed([(4.0, 0.1, 1)], []).epsilon(0.0) == math.inf
    assert composed([(4.0, 0.1, 0)], [0.5, 0.25]).epsilon(0.0) == 0.75
    assert Composition().epsilon(0.0) == 0.0


@pytest.mark.parametrize(
    ("text", "epsilon", "delta"), [("3/1e-5", 3.0, 1e-5), ("2", 2.0, 0.0), (0.5, 0.5, 0.0)]
)
def test_limits_are_written_as_epsilon_and_delta(text, epsilon, delta):
    assert PrivacyLimit.parse(text, "budget") == PrivacyLimit(epsilon=epsilon, delta=delta)
    assert PrivacyLimit.parse(PrivacyLimit(epsilon=1), "budget") == PrivacyLimit(epsilon=1)


@pytest.mark.parametrize("text", ["", "x", "1/2/3", "1/1", "-1/1e-5", "nan", "inf"])
def test_other_limits_are_errors_of_one_line(text):
    with pytest.raises(UnskewError, match="budget: "):
        PrivacyLimit.parse(text, "budget")
