"""FedSA: coordinates on which clients disagree are averaged by clusters of clients.

"The Key of Parameter Skew in Federated Learning" (FedSA, later FedPake). Coordinates with low
dispersion take the mean; on the others, clients are classified by their deviation (micro-classes),
clustered (macro-classes), and the clusters are weighted. See docs/aggregation.md.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.aggregation.dispersion import Bins, CvScale
from unskew.aggregation.fedsa import Scope, Weighting, fedsa
from unskew.aggregation.rule import Rule
from unskew.aggregation.weighting import by_samples, uniform
from unskew.composition.parts import Aspect
from unskew.composition.search_space import SearchSpace
from unskew.composition.values import About
from unskew.methods.common.rule_part import RulePart
from unskew.utils.specs import OPTIONS

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedSA(RulePart):
    """Aggregation by micro- and macro-classes."""

    cv_threshold: Share = 0.2
    """Coordinates whose scaled variation exceeds it are averaged by clusters. 1 is the Mean."""
    similarity: Share = 0.2
    """Once all clusters exist, clients that agree with none on more than this fraction of the
    coordinates are left out."""
    micro: Annotated[int, Field(ge=1, le=255)] = 4
    """Number of classes of squared deviations per coordinate, at most 255."""
    macro: Count = 4
    """Largest number of clusters of clients."""
    cv_scale: CvScale = "minmax"
    """Scaling of the variations: to their range ("minmax"), to the range up to the 99th percentile
    ("clip99"), or to the fraction of smaller ones ("rank")."""
    bins: Bins = "column"
    """Upper bound of the classes of squared deviations: the largest of the coordinate ("column"),
    of the tensor ("layer"), or 1 ("raw", as printed)."""
    scope: Scope = "tensor"
    """Clients are clustered for each "tensor", or once for the whole "model"."""
    weighting: Weighting = "normalised"
    """Whether clusters' weights sum to one ("normalised") or are the paper's Eq. 14 ("literal")."""
    prior: Literal["uniform", "samples"] = "uniform"
    """Weights of clients in means: equal ("uniform"), or by their "samples"."""

    about: ClassVar[About] = About(
        title="Parameter skew: micro- and macro-classes",
        paper="FedSA / FedPake 2024",
        kind="server",
        needs_individual_updates=True,
    )
    grid: ClassVar[SearchSpace] = {
        "cv_threshold": (0.1, 0.2, 0.3, 0.4),
        "similarity": (0.1, 0.2, 0.3, 0.4),
    }

    replaces = RulePart.replaces | {Aspect.STATISTICS}

    def rule(self) -> Rule:
        """Return FedSA's rule."""
        return fedsa(
            cv_threshold=self.cv_threshold,
            similarity=self.similarity,
            micro=self.micro,
            macro=self.macro,
            cv_scale=self.cv_scale,
            bins=self.bins,
            scope=self.scope,
            weighting=self.weighting,
            client_weighting=by_samples() if self.prior == "samples" else uniform(),
        )
