"""FedGroup: clients are grouped once, by the directions of their first updates.

Duan et al., "FedGroup: Efficient Federated Learning via Decomposed Similarity-Based Clustering",
2021. The updates of the first round are described by their cosines with a few main directions and
grouped by k-means; each group then trains a model of its own.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.bipartition import cosines, unit_rows
from unskew.aggregation.centers import k_means
from unskew.aggregation.uploads import Uploads
from unskew.methods.common.base import About, Server, Tensors
from unskew.methods.common.multi_model import (
    Count,
    MultiModelMethod,
    Placed,
    masses_of,
    with_models,
)
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedGroup(MultiModelMethod):
    """Groups with a model each, which may learn from each other."""

    models: Count = 3
    """How many groups there are; fewer if the first round has fewer clients. 1 is FedAvg."""
    mix: Annotated[float, Field(ge=0)] = 0.0
    """How much a group's model takes over of each other one, scaled to length one. 0: nothing."""

    own_slots: ClassVar[frozenset[str]] = MultiModelMethod.own_slots | {"start", "directions"}
    about: ClassVar[About] = About(
        title="Groups by the direction of first updates",
        paper="Duan et al. 2021",
        kind="several models",
        level="personal",
        needs_individual_updates=True,
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "models": (3, 5),
        "mix": (0.0, 0.01, 0.1),
    }

    def first_models(self, vector: Tensor, layout: Layout) -> Tensor:
        """Start everybody from the same model."""
        del layout
        return vector.repeat(self.models, 1)

    def begin(self, vector: Tensor, layout: Layout, earlier: Mapping[str, Server]) -> Server:
        """Keep the start, from which newcomers train so that their updates can be compared."""
        server = super().begin(vector, layout, earlier)
        return replace(server, slots={**server.slots, "start": server.vector.clone()})

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send a client its group's model; a newcomer gets the start, to be grouped first."""
        payload = super().broadcast(server, client)
        if self._is_newcomer(server, client):
            return {**payload, "model": server.slots["start"]}
        return payload

    def place(self, server: Server, uploads: Uploads) -> Placed:
        """Group the first round's clients; later, put newcomers to the nearest direction.

        A newcomer's upload only says where it belongs: it began at the start, behind its group.
        """
        updates = (uploads.stack - server.slots["start"])[:, : uploads.layout.trainable]
        if "directions" not in server.slots:
            cluster = k_means(decomposed_cosines(updates, self.models), self.models)
            slots = {**server.slots, "directions": _mean_directions(updates, cluster)}
            return Placed(replace(server, slots=slots), cluster)
        known = server.slots["cluster"]
        new = torch.tensor([self._is_newcomer(server, k) for k in uploads.clients])
        nearest = (unit_rows(updates) @ server.slots["directions"].T).argmax(1)
        old = [int(known[k]) if k < len(known) else -1 for k in uploads.clients]
        cluster = torch.where(new, nearest, torch.tensor(old).clamp(min=0))
        return Placed(server, cluster, ~new)

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Combine inside groups, then let the groups that have members learn from each other."""
        server, diagnostics = super().aggregate(server, uploads)
        if not self.mix:
            return server, diagnostics
        models, layout = server.slots["models"].clone(), uploads.layout
        used = (masses_of(server) > 0).nonzero().flatten()
        own = models[used, : layout.trainable]
        shares = (self.mix / own.norm(dim=1)).repeat(len(used), 1).fill_diagonal_(1)
        models[used, : layout.trainable] = (shares / shares.sum(1, keepdim=True)) @ own
        return with_models(server, models, layout), diagnostics

    def _is_newcomer(self, server: Server, client: int) -> bool:
        """Tell whether the groups are there and the client's is not known; one takes anybody."""
        known = server.slots["cluster"]
        grouped = client < len(known) and bool(known[client] >= 0)
        return self.models > 1 and "directions" in server.slots and not grouped


def decomposed_cosines(updates: Tensor, directions: int) -> Tensor:
    """Return each update's cosines with the main directions of all.

    Updates count by their direction alone: they are brought to length one first. From the
    products of updates with each other, since a long vector is described by few of them.
    """
    values, vectors = torch.linalg.eigh(cosines(updates.double()))
    lengths = values.clamp(min=0).sqrt()
    features: Tensor = (vectors * lengths)[:, -min(directions, len(updates)) :]
    return features


def _mean_directions(updates: Tensor, cluster: Tensor) -> Tensor:
    """Return the direction of each group's mean update."""
    means = [updates[cluster == g].mean(0) for g in range(int(cluster.max()) + 1)]
    return unit_rows(torch.stack(means))
