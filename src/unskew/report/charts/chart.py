"""One picture: what kind it is, the numbers to draw, and a table of them for papers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.runs.run import Run
from unskew.utils.tables import Table

Kind = Literal["curves", "boxes", "bars", "bubbles", "maps", "clusters", "histograms", "points"]


@dataclass(frozen=True)
class Chart:
    """A picture as plain values. ``name`` is that of its files, ``section`` its place on a page.

    ``data`` is thinned out to what an eye can tell apart; ``table`` holds every number.
    """

    name: str
    section: str
    title: str
    note: str
    kind: Kind
    data: dict[str, Any]
    table: Table


def tidy(value: float | None) -> float | None:
    """Return a number with five digits, which is more than a picture shows; None for NaN."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")


def tidied(values: Sequence[Any] | NDArray[np.float64]) -> list[float | None]:
    """Return numbers with five digits each."""
    return [tidy(float(value)) for value in values]


def cell(value: float | None) -> str:
    """Write a number into a table for programs; what is no number is left empty."""
    return "" if value is None or math.isnan(value) else f"{value:.8g}"


def thinned(length: int, most: int) -> list[int]:
    """Return at most so many places out of a length, evenly spread, both ends among them."""
    if length <= most:
        return list(range(length))
    return sorted(set(np.linspace(0, length - 1, most).round().astype(int).tolist()))


def last_stage(run: Run) -> str:
    """Return the stage that trains the task: the last one."""
    return str(run.metrics[-1]["stage"]) if run.metrics else "task"


def round_tables(run: Run) -> list[dict[str, Any]]:
    """Return the tables of the task's rounds."""
    stage = last_stage(run)
    return [t for t in run.client_tables if t["kind"] == "round" and t["stage"] == stage]
