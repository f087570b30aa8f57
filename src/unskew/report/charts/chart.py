"""A chart: its kind, the values to draw, and a table of all values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.runs.run import TASK, Run
from unskew.utils.tables import Table

ChartKind = Literal[
    "forest", "ranks", "curves", "boxes", "bars", "bubbles", "maps", "clusters", "histograms",
    "points",
]  # fmt: skip


@dataclass(frozen=True)
class Chart:
    """A chart as plain values. ``name`` is that of its files, ``section`` its heading on a page.

    ``data`` is thinned out to what is visible; ``table`` holds every value.
    """

    name: str
    section: str
    title: str
    note: str
    kind: ChartKind
    data: dict[str, Any]
    table: Table


def tidy(value: float | None) -> float | None:
    """Return a number with five significant digits, which suffices for a chart; None for NaN."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")


def tidied(values: Sequence[Any] | NDArray[np.float64]) -> list[float | None]:
    """Return numbers with five significant digits each."""
    return [tidy(float(value)) for value in values]


def cell(value: float | None) -> str:
    """Format a number for a CSV table; NaN and None are empty."""
    return "" if value is None or math.isnan(value) else f"{value:.8g}"


def thinned(length: int, max_points: int) -> list[int]:
    """Return at most ``max_points`` indices, evenly spread, including the first and the last."""
    if length <= max_points:
        return list(range(length))
    return sorted(set(np.linspace(0, length - 1, max_points).round().astype(int).tolist()))


def round_tables(run: Run) -> list[dict[str, Any]]:
    """Return the client tables of the task's rounds."""
    return [
        table for table in run.client_tables if table["kind"] == "round" and table["stage"] == TASK
    ]
