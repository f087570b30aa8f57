"""FedSA: coordinates on which clients disagree are averaged by classes of clients.

"The Key of Parameter Skew in Federated Learning" (FedSA, later FedPake). Coordinates of low
dispersion take the mean; on the others clients are classed by their deviation (micro-classes),
clustered (macro-classes), and the clusters are weighed. See docs/rules.md.
"""

from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.methods.base import About, Method, Server
from unskew.rules.dispersion import Bins, CvScale
from unskew.rules.fedsa import Scope, Weighting, fedsa
from unskew.rules.rule import Rule
from unskew.spelling import OPTIONS

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedSA(Method):
    """Aggregation by micro- and macro-classes."""

    cv_threshold: Share = 0.2
    similarity: Share = 0.2
    micro: Count = 4
    macro: Count = 4
    cv_scale: CvScale = "minmax"
    bins: Bins = "column"
    scope: Scope = "tensor"
    weighting: Weighting = "normalised"

    about: ClassVar[About] = About(
        title="Parameter skew: micro- and macro-classes",
        paper="FedSA / FedPake 2024",
        kind="server",
        needs_individual_updates=True,
    )

    def rule(self, server: Server) -> Rule:
        """Return FedSA's rule."""
        del server
        return fedsa(
            cv_threshold=self.cv_threshold,
            similarity=self.similarity,
            micro=self.micro,
            macro=self.macro,
            cv_scale=self.cv_scale,
            bins=self.bins,
            scope=self.scope,
            weighting=self.weighting,
        )
