"""Multi-Krum: the mean of the models with the best Krum scores.

Blanchard, El Mhamdi, Guerraoui and Stainer, "Machine Learning with Adversaries: Byzantine Tolerant
Gradient Descent", 2017.
"""

from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.aggregation.krum import multi_krum
from unskew.aggregation.rule import Rule
from unskew.composition.values import About
from unskew.methods.common.rule_part import RulePart
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class MultiKrum(RulePart):
    """The mean of the most central models."""

    f: Annotated[int, Field(ge=0)] = 1
    """Faulty clients tolerated per round; needs 2 f + 3 clients per round, any number with 0."""
    m: Annotated[int, Field(ge=1)] | None = None
    """Number of models that are averaged. 1 is Krum; None: all but f, the largest possible."""

    about: ClassVar[About] = About(
        title="Mean of central models",
        paper="Blanchard et al. 2017",
        kind="server",
        needs_individual_updates=True,
    )

    def rule(self) -> Rule:
        """Return Multi-Krum."""
        return multi_krum(self.f, self.m)
