"""Verdicts on claims, with values that can be checked by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.errors import UnskewError
from unskew.experiments.studies.claims import Difference, judge_claims, verdict_of
from unskew.experiments.studies.library import parse_study
from unskew.experiments.studies.study import Claim

FILE = """
title = "A study"
paper = "ida"
reproduces = ["Table 9"]
measures = ["global", "loss", "rounds"]
data = { name = "digits" }
[methods]
Ours = "ida"
Theirs = "fedavg"
Absent = "mean"
[[cases]]
name = "one"
paper.global = { Ours = 80.0, Theirs = 75.0 }
[[cases]]
name = "two"
[scales.cpu]
changes = "nothing"
[scales.smoke]
changes = "nothing"
[[claims]]
text = "ours is better"
method = "Ours"
"""


def judged(claim: str, cells, scale="cpu"):
    """Judge one claim, whose options are given as TOML."""
    file = parse_study("a-study", f"{FILE}{claim}\n")
    return judge_claims(file, cells, scale)[0]


def cells(ours, theirs, measure="global", case="one"):
    def by_seed(values):
        return {measure: dict(enumerate(values))}

    return {case: {"Ours": by_seed(ours), "Theirs": by_seed(theirs)}}


BETTER = 'measure = "global"\nthan = ["Theirs"]'


def test_a_significant_difference_holds_and_is_printed():
    found = judged(BETTER, cells([81, 82, 83.5], [71, 72, 73]))
    assert found.verdict == "held"
    assert found.differences[0].mean == pytest.approx(10 + 0.5 / 3)
    assert "+10.17 against Theirs" in str(found)


def test_the_papers_difference_is_printed_beside_ours():
    found = judged(f'{BETTER}\ncases = ["one"]', cells([81, 82, 83.5], [71, 72, 73]))
    assert found.paper == (5.0,)
    assert "paper +5.00" in str(found)


def test_a_significantly_worse_method_does_not_hold():
    assert judged(BETTER, cells([71, 72, 73], [81, 82, 83.5])).verdict == "not held"


def test_a_difference_that_changes_sign_is_not_significant():
    assert judged(BETTER, cells([70, 80, 75], [75, 75, 76])).verdict == "undecided"


def test_values_that_are_equal_with_every_seed_are_identical():
    found = judged(BETTER, cells([70, 80, 75], [70, 80, 75]))
    assert (found.verdict, str(found)) == ("identical", "equal to Theirs with every seed")


def test_a_method_that_equals_one_rival_is_not_better_than_all():
    both = cells([81, 82, 83.5], [71, 72, 73])
    both["one"]["Absent"] = both["one"]["Ours"]
    found = judged('measure = "global"\nthan = ["Theirs", "Absent"]', both)
    assert found.verdict == "not held"


def test_a_method_that_fell_back_with_every_seed_is_not_testable():
    file = parse_study("a-study", f'fallback = "Theirs"\n{FILE}{BETTER}\n')
    same = judge_claims(file, cells([70, 80, 75], [70, 80, 75]), "cpu")[0]
    assert same.verdict == "not testable at this scale"
    assert str(same) == "equal to Theirs with every seed; Ours fell back to Theirs with every seed"
    once = judge_claims(file, cells([70, 90, 85.5], [70, 80, 75]), "cpu")[0]
    assert once.verdict == "undecided"


def test_a_claim_of_order_does_not_hold_for_equivalent_methods():
    """Eight differences of 0.1 and -0.1: the interval is well within one point."""
    theirs = [70.0, 71.0, 72.0, 73.0, 74.0, 75.0, 76.0, 77.0]
    ours = [value + (0.1 if i % 2 else -0.1) for i, value in enumerate(theirs)]
    for kind in ("better", "worse"):
        assert judged(f'{BETTER}\nkind = "{kind}"', cells(ours, theirs)).verdict == "not held"
    close = judged(f"{BETTER}\nmargin = 0.01", cells(ours, theirs))
    assert close.verdict == "smaller than the paper's"


def test_the_margin_of_a_loss_is_one_per_cent_of_the_rivals_value():
    theirs = [500.0, 510.0, 490.0, 505.0, 495.0, 500.0]
    ours = [value + (1.0 if i % 2 else -1.0) for i, value in enumerate(theirs)]
    assert judged(LOSS, cells(ours, theirs, "loss")).verdict == "not held"
    tenth = [[value / 1000 for value in column] for column in (ours, theirs)]
    assert judged(LOSS, cells(*tenth, "loss")).verdict == "not held"


def test_a_small_but_significant_difference_holds():
    theirs = [70.0, 71.0, 72.0, 73.0, 74.0, 75.0]
    ours = [value + 0.3 + 0.01 * i for i, value in enumerate(theirs)]
    assert judged(BETTER, cells(ours, theirs)).verdict == "held"


ON_ONE = f'{BETTER}\ncases = ["one"]'


def test_an_open_difference_that_excludes_the_papers_is_smaller():
    """The paper's difference is 5; ours is 0.5 with an interval of about -2 to 3."""
    found = judged(ON_ONE, cells([71.5, 70.2, 73.6, 70.9], [70, 71, 72, 71.2]))
    assert found.verdict == "smaller than the paper's"
    assert "paper +5.00 (excluded)" in str(found)
    wide = judged(ON_ONE, cells([70, 80, 75], [75, 75, 76]))
    assert wide.verdict == "undecided"
    assert "paper +5.00" in str(wide)
    assert "excluded" not in str(wide)


def test_a_difference_that_holds_stays_held_where_the_papers_is_excluded():
    found = judged(ON_ONE, cells([72, 73, 74.1], [71, 72, 73]))
    assert found.verdict == "held"
    assert "(excluded)" in str(found)


def test_undecided_claims_say_how_many_seeds_would_decide():
    found = judged(BETTER, cells([72, 75, 71, 76], [71, 72, 73, 72]))
    assert found.verdict == "undecided"
    assert "seeds would probably decide it" in str(found)


def test_less_is_better_for_some_measures():
    claim = 'measure = "loss"\nthan = ["Theirs"]'
    found = judged(claim, cells([1.0, 1.1, 1.2], [2.0, 2.2, 2.1], "loss"))
    assert found.verdict == "held"
    assert found.differences[0].mean == pytest.approx(1.0)


def test_one_seed_is_not_testable():
    assert judged(BETTER, cells([90], [10])).verdict == "not testable at this scale"


def test_a_claim_is_judged_at_its_scales_only():
    found = judged(BETTER, cells([81, 82, 83.5], [71, 72, 73]), "smoke")
    assert found.verdict == "not testable at this scale"
    assert "too little" in str(found)


def test_methods_that_were_not_run_are_not_judged():
    assert judged(BETTER, {"one": {}}).verdict == "not testable at this scale"


def test_rivals_that_were_not_run_are_named_and_not_compared():
    claim = 'measure = "global"\nthan = ["Theirs", "Absent"]'
    found = judged(claim, cells([81, 82, 83.5], [71, 72, 73]))
    assert found.verdict == "held"
    assert [difference.second for difference in found.differences] == ["Theirs"]
    assert "not run at this scale: Absent" in str(found)


def test_rounds_to_a_rival_that_was_never_reached_do_not_hold():
    claim = 'measure = "rounds"\nthan = ["Theirs"]'
    found = judged(claim, cells([5, math.nan, 6], [50, 51, 52], "rounds"))
    assert found.verdict == "not held"
    assert "1 of 3 runs" in str(found)


def test_a_number_can_be_the_rival():
    claim = 'measure = "global"\nkind = "worse"\nthan_value = 25.0'
    assert judged(claim, cells([10, 11, 12], [0, 0, 0])).verdict == "held"
    assert judged(claim, cells([70, 71, 72], [0, 0, 0])).verdict == "not held"


def test_a_case_can_be_the_rival_and_cases_are_averaged():
    both = cells([80, 81, 82.5], [0, 0, 0]) | cells([60, 61, 62], [0, 0, 0], case="two")
    claim = 'measure = "global"\ncases = ["one"]\nthan_cases = ["two"]'
    found = judged(claim, both)
    assert found.verdict == "held"
    assert found.differences[0].mean == pytest.approx(20 + 0.5 / 3)


def test_since_compares_changes_relative_to_a_case():
    """Ours falls by 10, theirs by 30, so ours is better by 20."""
    before = cells([80, 81, 82], [80, 81, 82])
    after = cells([70, 71, 72.3], [50, 51, 52], case="two")
    found = judged(f'{BETTER}\ncases = ["two"]\nsince = "one"', before | after)
    assert found.verdict == "held"
    assert found.differences[0].mean == pytest.approx(20.1)


def test_methods_that_learned_nothing_are_not_called_equivalent():
    claim = 'measure = "global"\nkind = "equivalent"\nmargin = 1.0\nabove = 25.0\nthan = ["Theirs"]'
    near = ([10.0, 10.1, 10.2], [10.1, 10.0, 10.2])
    found = judged(claim, cells(*near))
    assert found.verdict == "not testable at this scale"
    assert str(found).startswith("none of the compared methods reached 25 on average")
    higher = [[value + 60 for value in column] for column in near]
    assert judged(claim, cells(*higher)).verdict == "held"


def difference(low, high, p=0.5):
    return Difference("b", (low + high) / 2, low, high, p)


@pytest.mark.parametrize(
    ("kind", "low", "high", "verdict"),
    [
        ("equivalent", -0.5, 0.9, "held"),
        ("equivalent", 1.5, 3.0, "not held"),
        ("equivalent", 0.5, 3.0, "undecided"),
        ("at least", -0.9, 7.0, "held"),
        ("at least", -3.0, -1.5, "not held"),
        ("at least", -3.0, 2.0, "undecided"),
    ],
)
def test_margins_are_judged_by_the_whole_interval(kind, low, high, verdict):
    claim = Claim(text="", measure="global", method="a", kind=kind, margin=1.0, than=["b"])
    assert verdict_of(claim, [difference(low, high)]) == verdict


def test_every_rival_must_be_beaten():
    claim = Claim(text="", measure="global", method="a", than=["b", "c"])
    better, unclear, worse = (
        difference(1, 3, 0.01),
        difference(-1, 3, 0.4),
        difference(-3, -1, 0.01),
    )
    assert verdict_of(claim, [better, better]) == "held"
    assert verdict_of(claim, [better, unclear]) == "undecided"
    assert verdict_of(claim, [better, worse]) == "not held"
    assert verdict_of(claim, []) == "not testable at this scale"


@given(st.floats(-50, 50), st.floats(0, 50), st.floats(0.001, 20))
def test_better_and_worse_are_opposites(low, width, margin):
    one = difference(low, low + width, 0.01)
    verdicts = {
        kind: verdict_of(Claim(text="", measure="global", method="a", kind=kind, than=["b"]), [one])
        for kind in ("better", "worse")
    }
    assert set(verdicts.values()) == {"held", "not held"} or one.mean == 0


LOSS = 'measure = "loss"\nthan = ["Theirs"]'
HALF = [1.0, 1.1, 1.05, math.nan, math.nan]


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("better", "not held"),
        ("at least", "not held"),
        ("worse", "not testable at this scale"),
        ("equivalent", "not testable at this scale"),
    ],
)
def test_a_method_without_a_value_for_every_seed_is_not_judged_by_the_others(kind, verdict):
    found = judged(f'{LOSS}\nkind = "{kind}"', cells(HALF, [2.0, 2.1, 2.2, 2.1, 2.0], "loss"))
    assert found.verdict == verdict
    assert str(found) == "Ours has no loss in 2 of 5 runs"


def test_missing_seeds_of_a_rival_are_reported():
    found = judged(LOSS, cells([0.5, 0.51, 0.52, 0.5, 0.49], HALF, "loss"))
    assert found.verdict == "held"
    assert "Theirs has no loss in 2 of 5 runs" in str(found)


def test_a_claim_about_an_unknown_method_is_an_error():
    with pytest.raises(UnskewError, match="no method is called 'Theirss'"):
        judged('measure = "global"\nthan = ["Theirss"]', cells([81, 82], [71, 72]))


def test_an_unknown_fallback_is_an_error():
    with pytest.raises(UnskewError, match="a-study: fallback: no method is called 'Average'"):
        parse_study("a-study", f'fallback = "Average"\n{FILE}{BETTER}\n')
