"""Trimmed mean: the mean of every coordinate without its extreme values.

Yin, Chen, Ramchandran and Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", 2018.
"""

from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.aggregation.order import trimmed_mean
from unskew.aggregation.rule import Rule
from unskew.composition.parts import Aspect
from unskew.composition.values import About
from unskew.methods.common.rule_part import RulePart
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Trimmed(RulePart):
    """The mean of every coordinate without its extreme values."""

    beta: Annotated[float, Field(ge=0, lt=0.5)] = 0.2
    """Fraction of the clients that is dropped on either side. 0 is the Mean."""

    about: ClassVar[About] = About(
        title="Trimmed mean",
        paper="Yin et al. 2018",
        kind="server",
        needs_individual_updates=True,
    )

    replaces = RulePart.replaces | {Aspect.STATISTICS}

    def rule(self) -> Rule:
        """Return the trimmed mean."""
        return trimmed_mean(self.beta)
