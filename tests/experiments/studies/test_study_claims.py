"""Verdicts, by numbers that can be checked by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.errors import UnskewError
from unskew.experiments.studies.claims import judge_claims, verdict
from unskew.experiments.studies.library import parse_study
from unskew.experiments.studies.study import Claim
from unskew.stats.paired import Difference

FILE = """
title = "A study"
paper = "ida"
makes = ["Table 9"]
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
    """Judge one claim, whose options are TOML."""
    file = parse_study("a-study", f"{FILE}{claim}\n")
    return judge_claims(file, cells, scale)[0]


def cells(ours, theirs, measure="global", case="one"):
    def by_seed(values):
        return {measure: dict(enumerate(values))}

    return {case: {"Ours": by_seed(ours), "Theirs": by_seed(theirs)}}


BETTER = 'measure = "global"\nthan = ["Theirs"]'


def test_a_clear_lead_holds_and_says_by_how_much():
    found = judged(BETTER, cells([81, 82, 83.5], [71, 72, 73]))
    assert found.word == "held"
    assert found.differences[0].mean == pytest.approx(10 + 0.5 / 3)
    assert "+10.17 against Theirs" in str(found)


def test_the_papers_own_difference_stands_beside_ours():
    found = judged(f'{BETTER}\ncases = ["one"]', cells([81, 82, 83.5], [71, 72, 73]))
    assert found.paper == (5.0,)
    assert "paper +5.00" in str(found)


def test_a_clear_loss_does_not_hold():
    assert judged(BETTER, cells([71, 72, 73], [81, 82, 83.5])).word == "not held"


def test_a_difference_that_changes_its_sign_is_noise():
    assert judged(BETTER, cells([70, 80, 75], [75, 75, 76])).word == "within noise"


def test_figures_that_are_the_same_with_every_seed_are_told_as_that():
    found = judged(BETTER, cells([70, 80, 75], [70, 80, 75]))
    assert (found.word, str(found)) == ("within noise", "the same as Theirs with every seed")


def test_less_is_better_where_the_measure_says_so():
    claim = 'measure = "loss"\nthan = ["Theirs"]'
    found = judged(claim, cells([1.0, 1.1, 1.2], [2.0, 2.2, 2.1], "loss"))
    assert found.word == "held"
    assert found.differences[0].mean == pytest.approx(1.0)


def test_one_seed_cannot_tell():
    assert judged(BETTER, cells([90], [10])).word == "not testable at this scale"


def test_a_claim_keeps_to_its_scales():
    found = judged(BETTER, cells([81, 82, 83.5], [71, 72, 73]), "smoke")
    assert found.word == "not testable at this scale"
    assert "too little" in str(found)


def test_what_was_not_played_cannot_be_judged():
    assert judged(BETTER, {"one": {}}).word == "not testable at this scale"


def test_rivals_that_were_not_played_are_named_and_left_out():
    claim = 'measure = "global"\nthan = ["Theirs", "Absent"]'
    found = judged(claim, cells([81, 82, 83.5], [71, 72, 73]))
    assert found.word == "held"
    assert [difference.second for difference in found.differences] == ["Theirs"]
    assert "not played here: Absent" in str(found)


def test_rounds_to_a_rival_that_was_never_reached_do_not_hold():
    claim = 'measure = "rounds"\nthan = ["Theirs"]'
    found = judged(claim, cells([5, math.nan, 6], [50, 51, 52], "rounds"))
    assert found.word == "not held"
    assert "1 of 3 runs" in str(found)


def test_a_number_can_be_the_rival():
    claim = 'measure = "global"\nkind = "worse"\nthan_value = 25.0'
    assert judged(claim, cells([10, 11, 12], [0, 0, 0])).word == "held"
    assert judged(claim, cells([70, 71, 72], [0, 0, 0])).word == "not held"


def test_a_case_can_be_the_rival_and_cases_are_averaged():
    both = cells([80, 81, 82.5], [0, 0, 0]) | cells([60, 61, 62], [0, 0, 0], case="two")
    claim = 'measure = "global"\ncases = ["one"]\nthan_cases = ["two"]'
    found = judged(claim, both)
    assert found.word == "held"
    assert found.differences[0].mean == pytest.approx(20 + 0.5 / 3)


def test_changes_since_a_case_compare_losses_of_accuracy():
    """Ours falls by 10, theirs by 30: ours falls less, by 20."""
    before = cells([80, 81, 82], [80, 81, 82])
    after = cells([70, 71, 72.3], [50, 51, 52], case="two")
    found = judged(f'{BETTER}\ncases = ["two"]\nsince = "one"', before | after)
    assert found.word == "held"
    assert found.differences[0].mean == pytest.approx(20.1)


def test_methods_that_learned_nothing_are_not_called_level():
    claim = 'measure = "global"\nkind = "level"\nmargin = 1.0\nabove = 25.0\nthan = ["Theirs"]'
    near = ([10.0, 10.1, 10.2], [10.1, 10.0, 10.2])
    assert judged(claim, cells(*near)).word == "not testable at this scale"
    higher = [[value + 60 for value in column] for column in near]
    assert judged(claim, cells(*higher)).word == "held"


def difference(low, high, p=0.5):
    return Difference("a", "b", 3, (low + high) / 2, low, high, p)


@pytest.mark.parametrize(
    ("kind", "low", "high", "word"),
    [
        ("level", -0.5, 0.9, "held"),
        ("level", 1.5, 3.0, "not held"),
        ("level", 0.5, 3.0, "within noise"),
        ("at least", -0.9, 7.0, "held"),
        ("at least", -3.0, -1.5, "not held"),
        ("at least", -3.0, 2.0, "within noise"),
    ],
)
def test_margins_are_judged_by_the_whole_interval(kind, low, high, word):
    claim = Claim(text="", measure="global", method="a", kind=kind, margin=1.0, than=["b"])
    assert verdict(claim, [difference(low, high)]) == word


def test_every_rival_must_be_beaten():
    claim = Claim(text="", measure="global", method="a", than=["b", "c"])
    good, noise, bad = (
        difference(1, 3, 0.01),
        difference(-1, 3, 0.4),
        difference(-3, -1, 0.01),
    )
    assert verdict(claim, [good, good]) == "held"
    assert verdict(claim, [good, noise]) == "within noise"
    assert verdict(claim, [good, bad]) == "not held"
    assert verdict(claim, []) == "not testable at this scale"


@given(st.floats(-50, 50), st.floats(0, 50), st.floats(0.001, 20))
def test_better_and_worse_are_opposites(low, width, margin):
    one = difference(low, low + width, 0.01)
    words = {
        kind: verdict(Claim(text="", measure="global", method="a", kind=kind, than=["b"]), [one])
        for kind in ("better", "worse")
    }
    assert set(words.values()) == {"held", "not held"} or one.mean == 0


LOSS = 'measure = "loss"\nthan = ["Theirs"]'
HALF = [1.0, 1.1, 1.05, math.nan, math.nan]


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("better", "not held"),
        ("at least", "not held"),
        ("worse", "not testable at this scale"),
        ("level", "not testable at this scale"),
    ],
)
def test_a_method_that_has_no_figure_with_some_seeds_is_not_judged_by_the_others(kind, word):
    found = judged(f'{LOSS}\nkind = "{kind}"', cells(HALF, [2.0, 2.1, 2.2, 2.1, 2.0], "loss"))
    assert found.word == word
    assert str(found) == "Ours has no loss in 2 of 5 runs"


def test_seeds_that_a_rival_lacks_are_told():
    found = judged(LOSS, cells([0.5, 0.51, 0.52, 0.5, 0.49], HALF, "loss"))
    assert found.word == "held"
    assert "Theirs has no loss in 2 of 5 runs" in str(found)


def test_a_claim_about_a_method_that_is_not_there_is_refused():
    with pytest.raises(UnskewError, match="no method is called 'Theirss'"):
        judged('measure = "global"\nthan = ["Theirss"]', cells([81, 82], [71, 72]))
