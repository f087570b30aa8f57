"""CFL: a cluster of clients is split in two where their updates point in different directions.

Sattler, Müller and Samek, "Clustered Federated Learning", 2019. All clients start with one model.
Once a cluster's mean update is small although some of its clients still have large updates, it is
split by the directions of the updates.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.bipartition import bipartition, cosines
from unskew.aggregation.uploads import Uploads
from unskew.composition.multi_model import Assignment, ModelSelector, model_of
from unskew.composition.values import About, Beginning, Server, Tensors
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS

NormBound = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class CFL(ModelSelector):
    """Splits a cluster if ``||mean update|| < eps1`` and ``max ||update|| > eps2``.

    The halves must also differ enough: ``gamma < sqrt((1 - largest cosine between them) / 2)``.
    """

    eps1: NormBound = 0.4
    """A cluster is split only if its mean update is shorter than this. 0 is FedAvg."""
    eps2: NormBound = 1.6
    """A cluster is split only if its longest update is longer than this."""
    wait: Annotated[int, Field(ge=0)] = 20
    """Number of rounds before the first split."""
    gamma: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The halves' updates must differ by more than this, from 0 (the same) to 1 (opposite)."""

    about: ClassVar[About] = About(
        title="Clusters split where updates disagree",
        paper="Sattler et al. 2019",
        kind="several models",
        level="personal",
        needs_individual_updates=True,
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "eps1": (0.1, 0.4, 1.0),
        "eps2": (0.6, 1.6, 4.0),
    }

    def initial_models(self, vector: Tensor, layout: Layout) -> Tensor:
        """Start with one model."""
        return vector.unsqueeze(0)

    def begin(self, beginning: Beginning) -> Tensors:
        """Start counting rounds."""
        return {"round": torch.tensor(0)}

    def assign(self, server: Server, uploads: Uploads) -> Assignment:
        """Keep clients in their clusters, and split the clusters that meet the conditions."""
        cluster = torch.tensor([model_of(server, k) for k in uploads.clients])
        round_ = int(server.state["round"]) + 1
        models, copied = server.state["models"], list[int]()
        for number in range(len(models) if round_ > self.wait else 0):
            rows = (cluster == number).nonzero().flatten()
            leaving = self._leaving(models[number], uploads, rows)
            if leaving is not None:
                cluster[rows[leaving]] = len(models) + len(copied)
                copied.append(number)
        state = {"round": torch.tensor(round_), "models": torch.cat([models, models[copied]])}
        server = replace(server, state={**server.state, **state})
        return Assignment(server, cluster, copied=copied)

    def _leaving(self, model: Tensor, uploads: Uploads, rows: Tensor) -> Tensor | None:
        """Mark the clients that move to a new cluster; None if the cluster is not split."""
        if len(rows) < 2:
            return None
        updates = (uploads.stack[rows] - model)[:, : uploads.layout.trainable].double()
        weights = uploads.samples[rows] / uploads.samples[rows].sum()
        converged = float((weights @ updates).norm()) < self.eps1
        if not converged or float(updates.norm(dim=1).max()) <= self.eps2:
            return None
        similarity = cosines(updates)
        leaving = bipartition(similarity)
        largest = float(similarity[leaving][:, ~leaving].max())
        return leaving if self.gamma < ((1 - largest) / 2) ** 0.5 else None
