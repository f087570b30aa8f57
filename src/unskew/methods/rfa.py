"""RFA: the geometric median of the clients' models.

Pillutla, Kakade and Harchaoui, "Robust Aggregation for Federated Learning", 2019.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.aggregation.geometric import geometric_median
from unskew.aggregation.rule import Rule
from unskew.aggregation.weighting import by_samples, uniform
from unskew.composition.values import About
from unskew.methods.common.rule_part import RulePart
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class RFA(RulePart):
    """The geometric median, approximated by smoothed Weiszfeld steps from a mean."""

    weights: Literal["equal", "samples"] = "equal"
    """All clients count the same ("equal"), or by their sample counts ("samples", as published);
    a client that lies about its count then takes the median."""
    iterations: Annotated[int, Field(ge=0)] = 4
    """Largest number of steps; they stop once the distances hardly change. 0 is the Mean, or
    FedAvg with weights=samples."""
    nu: Annotated[float, Field(gt=0)] = 1e-5
    """Models closer than this to the current point count as equally close."""

    about: ClassVar[About] = About(
        title="Geometric median",
        paper="Pillutla et al. 2019",
        kind="server",
        needs_individual_updates=True,
    )

    def rule(self) -> Rule:
        """Return the geometric median."""
        prior = uniform() if self.weights == "equal" else by_samples()
        return geometric_median(self.iterations, self.nu, prior)
