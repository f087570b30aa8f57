"""Bulyan: models are selected by repeated Krum, then averaged around their median.

El Mhamdi, Guerraoui and Rouault, "The Hidden Vulnerability of Distributed Learning in Byzantium",
2018.
"""

from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.aggregation.krum import bulyan
from unskew.aggregation.rule import Rule
from unskew.composition.parts import Aspect
from unskew.composition.values import About
from unskew.methods.common.rule_part import RulePart
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Bulyan(RulePart):
    """Repeated selection by Krum, then a trimmed mean around the median."""

    f: Annotated[int, Field(ge=0)] = 1
    """Faulty clients tolerated per round; needs 4 f + 3 clients per round. 0 is the Mean."""

    about: ClassVar[About] = About(
        title="Krum, then a trimmed mean",
        paper="El Mhamdi et al. 2018",
        kind="server",
        needs_individual_updates=True,
    )

    replaces = RulePart.replaces | {Aspect.STATISTICS}

    def rule(self) -> Rule:
        """Return Bulyan."""
        return bulyan(self.f)
