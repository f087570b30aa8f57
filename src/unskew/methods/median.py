"""Median: the median of every coordinate over the clients.

Yin, Chen, Ramchandran and Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", 2018.
"""

from typing import ClassVar

from pydantic.dataclasses import dataclass

from unskew.aggregation.order import coordinate_median
from unskew.aggregation.rule import Rule
from unskew.composition.parts import Aspect
from unskew.composition.values import About
from unskew.methods.common.rule_part import RulePart
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Median(RulePart):
    """The median of every coordinate."""

    about: ClassVar[About] = About(
        title="Coordinate-wise median",
        paper="Yin et al. 2018",
        kind="server",
        needs_individual_updates=True,
    )

    replaces = RulePart.replaces | {Aspect.STATISTICS}

    def rule(self) -> Rule:
        """Return the coordinate-wise median."""
        return coordinate_median()
