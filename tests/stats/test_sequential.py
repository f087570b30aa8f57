"""Verdicts while seeds are added in waves."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.errors import UnskewError
from unskew.stats import judge, judge_waves, plan_waves
from unskew.stats.sequential import shares

WAVES = (5, 8, 12)
TABLES = st.integers(0, 2**32 - 1).map(lambda seed: table(np.random.default_rng(seed)))


def table(rng, seeds=12, spread=1.5, effects=(0.0, 4.0, 0.0, 1.5, -4.0)):
    """Values around 70 with a shared seed effect; the first method is the baseline."""
    noise = 3 * rng.normal(size=seeds) + spread * rng.normal(size=(len(effects), seeds))
    return {f"m{i}": (70 + effects[i] + row).tolist() for i, row in enumerate(noise)}


def first(values, seeds):
    return {name: row[:seeds] for name, row in values.items()}


def test_waves_grow_to_the_maximum():
    assert plan_waves(5) == (5,)
    for seeds in range(5, 60):
        waves = plan_waves(seeds)
        assert waves[-1] == seeds
        assert list(waves) == sorted(set(waves))
        assert sum(shares(waves)) == pytest.approx(1)
    with pytest.raises(UnskewError, match="max_seeds must be at least 5"):
        plan_waves(4)


def test_a_single_wave_is_the_ordinary_verdict():
    values = table(np.random.default_rng(0))
    wave = judge_waves(values, (12,))
    assert wave.answers.pairs == judge(values).pairs
    assert wave.next_methods == ()
    assert wave.next_seeds is None


def test_the_next_methods_are_those_without_an_answer_and_the_baseline():
    values = table(np.random.default_rng(1), effects=(0.0, 15.0, 0.0, -15.0))
    wave = judge_waves(first(values, 5), WAVES)
    assert [wave.answers.pair(f"m{i}").answer for i in (1, 2, 3)] == [
        "better", "undecided", "worse",
    ]  # fmt: skip
    assert (wave.next_methods, wave.next_seeds, wave.looks) == (("m0", "m2"), 8, 1)


@pytest.mark.long
@settings(max_examples=20)
@given(TABLES)
def test_answers_stay_and_later_values_of_a_settled_method_do_not_count(values):
    one = judge_waves(first(values, 5), WAVES)
    settled = [pair for pair in one.answers.pairs if pair.answer != "undecided"]
    later = first(values, 8)
    for pair in settled:
        later[pair.method] = [*later[pair.method][:5], *[math.nan] * 3]
    two, full = judge_waves(later, WAVES), judge_waves(first(values, 8), WAVES)
    assert two.answers == full.answers
    assert [two.answers.pair(pair.method) for pair in settled] == settled
    assert set(two.next_methods) <= set(one.next_methods)
    assert set(two.answers.best) <= set(one.answers.best)


@settings(max_examples=20)
@given(TABLES)
def test_a_look_spends_less_than_a_single_verdict(values):
    wave, only = judge_waves(first(values, 5), WAVES), judge(first(values, 5))
    for pair in wave.answers.pairs:
        other = only.pair(pair.method)
        assert pair.p >= other.p
        assert pair.answer in ("undecided", other.answer)
        assert pair.high - pair.low >= other.high - other.low


def test_no_wave_is_left_after_the_last():
    values = table(np.random.default_rng(2), effects=(0.0, 1.0))
    wave = judge_waves(values, WAVES)
    assert wave.answers.pairs[0].answer == "undecided"
    assert (wave.next_methods, wave.next_seeds, wave.looks) == ((), None, 3)


def test_the_search_for_the_best_ends_when_one_is_left():
    values = table(np.random.default_rng(3), effects=(0.0, 25.0, 12.0, 12.0))
    wave = judge_waves(first(values, 5), WAVES, best=True)
    assert wave.answers.best == ("m1",)
    assert wave.next_methods == ()


def test_the_search_for_the_best_drops_methods_that_cannot_be():
    values = table(np.random.default_rng(4), effects=(0.0, 25.0, 25.0, 12.0))
    wave = judge_waves(first(values, 5), WAVES, best=True)
    assert [pair.answer for pair in wave.answers.pairs] == ["better"] * 3
    assert set(wave.answers.best) == {"m1", "m2"}
    assert wave.next_methods == ("m0", "m1", "m2")


def test_a_method_that_cannot_be_the_best_is_trained_until_it_has_an_answer():
    values = table(np.random.default_rng(3), effects=(0.0, 25.0, 1.0))
    wave = judge_waves(first(values, 5), WAVES, best=True)
    assert wave.answers.best == ("m1",)
    assert wave.next_methods == ("m0", "m2")


def test_the_search_for_the_best_ends_when_the_rest_is_equivalent():
    values = table(np.random.default_rng(5), spread=0.05, effects=(0.0, 9.0, 9.0, 9.0))
    wave = judge_waves(first(values, 5), WAVES, best=True)
    assert len(wave.answers.best) > 1
    assert wave.next_methods == ()


def test_a_method_without_values_is_not_trained_further():
    values = first(table(np.random.default_rng(6), effects=(0.0, 1.0, 1.0)), 5)
    wave = judge_waves(values | {"m2": [math.nan] * 5}, WAVES)
    assert wave.next_methods == ("m0", "m1")
    assert wave.answers.pair("m2").answer == "undecided"


def test_too_few_seeds_and_wrong_waves_are_errors():
    values = table(np.random.default_rng(0))
    with pytest.raises(UnskewError, match="needs 5 seeds"):
        judge_waves(first(values, 4), WAVES)
    for waves in ((), (8, 5), (1, 5)):
        with pytest.raises(UnskewError, match="waves"):
            judge_waves(values, waves)
