"""Sizes are compared with the cohort's median; of few replies, with the past and the model."""

import pytest

from unskew.composition.accepted_sizes import AcceptedSizes
from unskew.composition.upload_values import TRAIN_LOSS, Value
from unskew.engine.size_checks import SizeLimits, check_sizes

NOTHING = AcceptedSizes()


def check(value, sizes, accepted=NOTHING, model=0.0):
    return check_sizes(sizes, SizeLimits.of_value("value", value, model), accepted)


def wrong(*arguments, **options):
    return list(check(*arguments, **options).wrong)


def accepted(*rounds):
    """The history after rounds, each given as the sizes of its clients."""
    history = AcceptedSizes()
    for sizes in rounds:
        history = history.after_round({"value": sizes})
    return history


def test_three_or_more_are_compared_with_their_median():
    value = Value(times=10)
    assert wrong(value, {0: 1.0, 1: 2.0, 2: 3.0, 3: 19.0}) == []
    assert wrong(value, {0: 1.0, 1: 2.0, 2: 3.0, 3: 21.0}) == [3]
    assert wrong(Value(times=10, floor=1.0), {0: 0.0, 1: 0.0, 2: 0.0, 3: 11.0}) == [3]
    assert wrong(Value(times=10, floor=1.0), {0: 1e-6, 1: 1e-6, 2: 1e-6, 3: 9.0}) == []
    assert wrong(TRAIN_LOSS, {0: 0.1, 1: 0.2, 2: 0.3, 3: 1e30}) == [3]


def test_of_two_that_disagree_the_past_tells_which_one_is_wrong():
    value, sizes = Value(times=10), {0: 1.0, 1: 500.0}
    assert wrong(value, sizes, accepted({0: 1.0, 1: 2.0})) == [1]
    assert wrong(value, sizes, accepted({0: 1.0, 2: 2.0})) == [1]  # the client is new
    assert wrong(value, sizes, accepted({0: 90.0, 1: 90.0})) == []
    assert wrong(value, {0: 1.0}, accepted({0: 1.0, 1: 2.0})) == []
    assert wrong(value, {1: 500.0}, accepted({0: 1.0, 1: 2.0})) == [1]


def test_two_that_agree_are_accepted_whatever_the_past_says():
    assert wrong(Value(times=10), {0: 900.0, 1: 500.0}, accepted({0: 1.0, 1: 2.0})) == []


def test_of_two_that_disagree_the_broadcast_model_tells_which_one_is_impossible():
    value, sizes = Value(times=10), {0: 1.0, 1: 500.0}
    assert wrong(value, sizes, model=500.0) == []
    assert wrong(value, sizes, model=4.0) == [1]
    assert wrong(value, {1: 500.0}, model=4.0) == [1]
    assert wrong(value, {1: 500.0}, model=6.0) == []
    assert wrong(Value(times=10, floor=1.0), {1: 99.0}) == []
    assert wrong(Value(times=10, floor=1.0), {1: 101.0}) == [1]


@pytest.mark.parametrize("history", [NOTHING, accepted({0: 1.0, 1: 90.0})])
def test_both_are_named_where_nothing_tells_which_one_is_wrong(history):
    found = check(Value(times=10), {0: 1.0, 1: 500.0}, history, model=50.0)
    assert found.undecided
    assert found.wrong == {
        0: "its 'value' is 0.002 times as large as that of the other reply, and nothing tells "
        "which of the two is wrong",
        1: "its 'value' is 500 times as large as that of the other reply, and nothing tells "
        "which of the two is wrong",
    }
    assert found.sizes == {}


def test_a_client_cannot_grow_step_by_step():
    history, size = accepted({0: 1.0, 1: 1.0}), 1.0
    for _ in range(5):
        found = check(Value(times=10), {0: 1.0, 1: 9 * size}, history, model=0.5)
        if found.wrong:
            break
        size, history = 9 * size, history.after_round({"value": found.sizes})
    assert size == 9.0


def test_the_loss_of_a_single_client_is_compared_with_nothing():
    history = AcceptedSizes().after_round({"train_loss": {0: 1.0}})
    limits = SizeLimits.of_value("train_loss", TRAIN_LOSS, 1.0)
    assert not check_sizes({0: 1e9}, limits, history).wrong
    assert list(check_sizes({0: 1.0, 1: 1e9}, limits, history).wrong) == [1]
    assert list(check_sizes({0: 1.0, 1: 1e9}, limits, NOTHING).wrong) == [1]
    assert check_sizes({0: 1.0, 1: 1e5}, limits, NOTHING).undecided


def test_a_model_that_moved_only_by_rounding_is_no_evidence():
    limits = SizeLimits.of_movement(1000.0, 5.0)
    found = check_sizes({0: 1e-7, 1: 0.3}, limits, NOTHING)
    assert not found.wrong
    assert found.sizes == {1: 0.3}
    assert not check_sizes({0: 1e-7, 1: 1e-7, 2: 0.3}, limits, NOTHING).wrong
    found = check_sizes({0: 1e-7, 1: 1e6}, limits, NOTHING)
    assert found.wrong == {
        1: "its model moved 2e+05 times as far as the norm of the model that it received"
    }


def test_what_was_accepted_survives_a_checkpoint():
    history = accepted({0: 1.0, 3: 0.1}, {0: 7.0}, {5: 2.0}).after_round({"other/name": {2: 0.3}})
    again = AcceptedSizes.from_tensors(history.to_tensors())
    assert (again.medians, again.first) == (history.medians, history.first)
    assert again.known("value", 5) == [2.0, 2.0]
