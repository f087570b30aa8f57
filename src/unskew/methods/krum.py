"""Krum: the one model that is closest to its nearest neighbours.

Blanchard, El Mhamdi, Guerraoui and Stainer, "Machine Learning with Adversaries: Byzantine Tolerant
Gradient Descent", 2017.
"""

from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.aggregation.krum import krum
from unskew.aggregation.rule import Rule
from unskew.composition.values import About
from unskew.methods.common.rule_part import RulePart
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Krum(RulePart):
    """The one model that is closest to its nearest neighbours."""

    f: Annotated[int, Field(ge=0)] = 1
    """Faulty clients tolerated per round; needs 2 f + 3 clients per round, any number with 0."""

    about: ClassVar[About] = About(
        title="The most central model",
        paper="Blanchard et al. 2017",
        kind="server",
        needs_individual_updates=True,
    )

    def rule(self) -> Rule:
        """Return Krum."""
        return krum(self.f)
