"""FedGroup: clients are grouped once, by the directions of their first updates.

Duan et al., "FedGroup: Efficient Federated Learning via Decomposed Similarity-Based Clustering",
2021. The updates of the first round are described by their cosines with the principal directions
and grouped by k-means; each group then trains its own model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.bipartition import cosines, unit_rows
from unskew.aggregation.centers import k_means
from unskew.aggregation.uploads import Uploads
from unskew.composition.multi_model import (
    Assignment,
    Count,
    ModelSelector,
    samples_per_model,
    with_models,
)
from unskew.composition.values import About, Beginning, Server, Tensors
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedGroup(ModelSelector):
    """Groups with one model each, which can be mixed with those of other groups."""

    models: Count = 3
    """Number of groups; smaller if the first round has fewer clients. 1 is FedAvg."""
    mix: Annotated[float, Field(ge=0)] = 0.0
    """Weight of every other group's model, scaled to length one, in a group's model. 0: none."""

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

    def initial_models(self, vector: Tensor, layout: Layout) -> Tensor:
        """Start all groups from the same model."""
        return vector.repeat(self.models, 1)

    def begin(self, beginning: Beginning) -> Tensors:
        """Keep the initial model: new clients train it, so that their updates are comparable."""
        return {"start": beginning.vector.clone()}

    def sent(self, server: Server, client: int) -> tuple[Sequence[int], Tensor]:
        """Send a client its group's model; a new client gets the initial model, to be grouped."""
        numbers, vector = super().sent(server, client)
        return numbers, server.state["start"] if self._is_new(server, client) else vector

    def assign(self, server: Server, uploads: Uploads) -> Assignment:
        """Group the first round's clients; later, assign new clients to the nearest direction.

        A new client's upload only decides its group. It is not averaged, because it was trained
        from the initial model.
        """
        updates = (uploads.stack - server.state["start"])[:, : uploads.layout.trainable]
        if "directions" not in server.state:
            cluster = k_means(decomposed_cosines(updates, self.models), self.models)
            state = {**server.state, "directions": _mean_directions(updates, cluster)}
            return Assignment(replace(server, state=state), cluster)
        known = server.state["cluster"]
        new = torch.tensor([self._is_new(server, k) for k in uploads.clients])
        nearest = (unit_rows(updates) @ server.state["directions"].T).argmax(1)
        old = [int(known[k]) if k < len(known) else -1 for k in uploads.clients]
        cluster = torch.where(new, nearest, torch.tensor(old).clamp(min=0))
        return Assignment(server, cluster, ~new)

    def mixed(self, server: Server, layout: Layout) -> Server:
        """Mix the models of the groups that have clients."""
        if not self.mix:
            return server
        models = server.state["models"].clone()
        used = (samples_per_model(server) > 0).nonzero().flatten()
        parameters = models[used, : layout.trainable]
        shares = (self.mix / parameters.norm(dim=1)).repeat(len(used), 1).fill_diagonal_(1)
        models[used, : layout.trainable] = (shares / shares.sum(1, keepdim=True)) @ parameters
        return with_models(server, models, layout)

    def _is_new(self, server: Server, client: int) -> bool:
        """Return whether groups exist and the client has none; a single group needs no check."""
        known = server.state["cluster"]
        grouped = client < len(known) and bool(known[client] >= 0)
        return self.models > 1 and "directions" in server.state and not grouped


def decomposed_cosines(updates: Tensor, directions: int) -> Tensor:
    """Return each update's cosines with the principal directions of all updates.

    Updates are first scaled to length one, so that only their directions matter. The directions
    come from the eigenvectors of the small matrix of cosines between updates.
    """
    values, vectors = torch.linalg.eigh(cosines(updates.double()))
    lengths = values.clamp(min=0).sqrt()
    features: Tensor = (vectors * lengths)[:, -min(directions, len(updates)) :]
    return features


def _mean_directions(updates: Tensor, cluster: Tensor) -> Tensor:
    """Return the direction of each group's mean update, one row per group."""
    means = [updates[cluster == g].mean(0) for g in range(int(cluster.max()) + 1)]
    return unit_rows(torch.stack(means))
