"""The forest plot of the terminal: positions checked by hand."""

import math

from unskew.cli.forest import forest_lines
from unskew.stats.judging import Answers, Pair
from unskew.stats.metric import ACCURACY
from unskew.stats.verdict import Verdict


def verdict(*pairs, margin=1.0):
    found = Answers("fedavg", pairs, ("fedavg",), margin, 0.05)
    return Verdict(ACCURACY, found, {"fedavg": 0.7}, 5)


def pair(method, difference, low, high):
    return Pair(method, "undecided", difference, low, high, 0.5, None, 5)


def test_differences_intervals_and_the_margin_are_at_their_places():
    """41 columns from -2 to 2: the margin is in columns 10 and 30, the baseline in column 20."""
    better = pair("new", 5 / 3, 1.4, 1.9)  # the axis ends at 1.2 times the largest difference: 2
    line, scale = forest_lines(verdict(better), 41 + len("new") + 2)
    cells = line[5:]
    assert [cells.index("·"), cells.index("│"), cells.index("●")] == [10, 20, 37]
    assert cells[30] == "·"
    assert (cells.index("─"), cells.rindex("─")) == (34, 39)
    assert scale.split() == ["-2.00", "0", "+2.00"]


def test_the_best_is_first_and_wide_intervals_are_cut():
    lines = forest_lines(verdict(pair("a", -1, -9, 7), pair("b", 2, 1, 3)), 60)
    assert [line[0] for line in lines[:2]] == ["b", "a"]
    assert "◂" in lines[1]
    assert "▸" in lines[1]


def test_methods_without_a_difference_and_narrow_terminals_have_no_plot():
    assert forest_lines(verdict(pair("a", math.nan, math.nan, math.nan)), 80) == []
    assert forest_lines(verdict(pair("a", 1, 0, 2)), 20) == []
    lines = forest_lines(verdict(pair("same", 0.0, 0.0, 0.0), margin=0.0), 60)
    assert lines[0].count("●") == 1
