"""A forest plot for the terminal: each method's difference to the baseline, with its interval."""

import math
from shutil import get_terminal_size

import typer

from unskew.stats.judging import Pair
from unskew.stats.verdict import Verdict

_NARROWEST, _WIDEST = 24, 100
"""Below this width in characters, intervals look alike; wider lines are hard to read."""


def print_forest(verdict: Verdict) -> None:
    """Print the plot between two empty lines, with a heading, if the terminal is wide enough."""
    lines = forest_lines(verdict, min(get_terminal_size().columns, _WIDEST))
    if lines:
        heading = f"Difference to {verdict.baseline} in {verdict.metric.name}; dots: margin"
        typer.echo("\n".join(["", heading, *lines, ""]))


def forest_lines(verdict: Verdict, width: int) -> list[str]:
    """Return one line per rival, the best first, and one with the scale; none if too narrow.

    ``│`` is the baseline, ``·`` the margin within which methods are equivalent, ``●`` a difference
    and ``─`` its interval; ``◂`` and ``▸`` are intervals that extend beyond the plot.
    """
    pairs = [pair for pair in verdict.pairs if math.isfinite(pair.difference)]
    if not pairs:
        return []
    pairs.sort(key=lambda pair: -pair.difference)
    names = max(len(pair.method) for pair in pairs)
    columns = width - names - 2
    if columns < _NARROWEST:
        return []
    # Better is on the right, also for losses, whose differences are shown with their own sign.
    extent = _extent(pairs, verdict.answers.margin)

    def column(value: float) -> int:
        place = (value + extent) / (2 * extent) * (columns - 1)
        return min(max(round(place), 0), columns - 1)

    lines = []
    for pair in pairs:
        cells = [" "] * columns
        for edge in (-verdict.answers.margin, verdict.answers.margin):
            cells[column(edge)] = "·"
        cells[column(0)] = "│"
        if not math.isnan(pair.low):
            for place in range(column(pair.low), column(pair.high) + 1):
                cells[place] = "─"
            if pair.low < -extent:
                cells[0] = "◂"
            if pair.high > extent:
                cells[-1] = "▸"
        cells[column(pair.difference)] = "●"
        lines.append(f"{pair.method:<{names}}  {''.join(cells)}".rstrip())
    low, high = verdict.signed(-extent), verdict.signed(extent)
    middle = "0".center(columns - len(low) - len(high))
    return [*lines, f"{'':<{names}}  {low}{middle}{high}"]


def _extent(pairs: list[Pair], margin: float) -> float:
    """Return the largest difference that is drawn: wide intervals are cut off."""
    largest = max(abs(pair.difference) for pair in pairs)
    ends = [abs(end) for pair in pairs for end in (pair.low, pair.high) if math.isfinite(end)]
    extent = max([1.5 * margin, 1.2 * largest, min(max(ends, default=0.0), 2 * largest + margin)])
    return extent or 1.0
