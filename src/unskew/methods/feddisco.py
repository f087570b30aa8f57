"""FedDisco: clients whose labels are far from even count less.

Ye et al., "FedDisco: Federated Learning with Discrepancy-Aware Collaboration", 2023. The weight is
``max(0, p_k - a d_k + b)`` with p_k the share of samples and d_k the divergence of the client's
labels from even ones.
"""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.aggregation.discrepancy import OnDegenerate, discrepancy, label_divergence
from unskew.aggregation.weighting import ClientWeighting
from unskew.methods.common.base import (
    About,
    Client,
    Finished,
    Method,
    Server,
    Start,
    Tensors,
    Trained,
)
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedDisco(Method):
    """Weights from label histograms, which clients send along with their models."""

    alpha: Annotated[float, Field(ge=0)] = 0.5
    """How much its discrepancy lowers a client's weight; with b = 0 too, 0 is FedAvg."""
    b: Annotated[float, Field(ge=0)] = 0.1
    """Added to every weight before those below 0 become 0; the larger, the more even they are."""
    measure: Literal["kl", "l1", "l2", "cosine"] = "kl"
    """How far labels are from even ones: "kl" divergence, sum ("l1") or Euclidean length ("l2") of
    the differences, or one minus the "cosine"."""
    rescale: bool | None = None
    """Whether discrepancies are scaled to sum to one; None: for kl only, as published."""
    on_degenerate: OnDegenerate = "fedavg"
    """Where no client is left a weight: take those of "fedavg" and warn, or "raise" an error."""

    about: ClassVar[About] = About(
        title="Discrepancy of labels",
        paper="Ye et al. 2023",
        kind="server",
        up="model, label counts",
    )

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the label histogram too."""
        finished = super().finish(client, start, trained, state)
        counts = torch.bincount(client.y.long(), minlength=client.classes)
        return Finished({**finished.extras, "label_counts": counts}, finished.state)

    def weightings(self, server: Server) -> tuple[ClientWeighting, ...]:
        """Add discrepancy-aware weights, which hold the sample counts already."""
        rescale = self.measure == "kl" if self.rescale is None else self.rescale
        divergence = label_divergence(self.measure)
        own = discrepancy(divergence, self.alpha, self.b, rescale, self.on_degenerate)
        return (*super().weightings(server), own)
