"""FedDisco: clients whose label distribution is far from uniform get a smaller weight.

Ye et al., "FedDisco: Federated Learning with Discrepancy-Aware Collaboration", 2023. The weight is
``max(0, p_k - a d_k + b)`` with p_k the share of samples and d_k the divergence of the client's
label distribution from the uniform one.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.aggregation.discrepancy import OnDegenerate, discrepancy, label_divergence
from unskew.aggregation.weighting import ClientWeighting
from unskew.composition.parts import Aspect, ServerSide
from unskew.composition.search_space import SearchSpace
from unskew.composition.values import About, Server
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedDisco(ServerSide):
    """Weights from label histograms, which clients send with their models."""

    alpha: Annotated[float, Field(ge=0)] = 0.5
    """How strongly the discrepancy lowers a client's weight; 0 is FedAvg if b is also 0."""
    b: Annotated[float, Field(ge=0)] = 0.1
    """Added to every weight before negative weights become 0; larger gives more even weights."""
    measure: Literal["kl", "l1", "l2", "cosine"] = "kl"
    """Discrepancy of labels from the uniform distribution: "kl" divergence, sum ("l1") or Euclidean
    length ("l2") of the differences, or one minus the "cosine"."""
    rescale: bool | None = None
    """Whether discrepancies are scaled to sum to one; None: only for kl, as published."""
    on_degenerate: OnDegenerate = "fedavg"
    """If all weights are 0: use the weights of "fedavg" and warn, or "raise" an error."""

    about: ClassVar[About] = About(
        title="Discrepancy of labels",
        paper="Ye et al. 2023",
        kind="server",
        up="model, label counts",
    )
    grid: ClassVar[SearchSpace] = {"alpha": (0.1, 0.3, 0.5, 0.7, 0.9)}

    adds = frozenset({Aspect.WEIGHTS})
    needs = frozenset({"label_counts"})

    def client_weights(self, server: Server) -> ClientWeighting:
        """Weight clients by their discrepancy; the weights already include the sample counts."""
        rescale = self.measure == "kl" if self.rescale is None else self.rescale
        divergence = label_divergence(self.measure)
        return discrepancy(divergence, self.alpha, self.b, rescale, self.on_degenerate)
