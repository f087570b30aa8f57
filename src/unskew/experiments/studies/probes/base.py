"""What a probe is: a measurement of a case, and a figure of its results."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unskew.experiments.studies.study import Case

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawings = dict[str, dict[str, Any]]
"""The values a probe draws, by case."""


@dataclass(frozen=True)
class ProbeResult:
    """The result of a probe: values by label and measure, and the values to draw."""

    values: dict[str, dict[str, float]]
    drawing: dict[str, Any]


@dataclass(frozen=True)
class Probe:
    """Measures a case with a seed, and draws the results of all cases."""

    measure: Callable[[Case, int], ProbeResult]
    draw: Callable[[Drawings], "Figure"]
