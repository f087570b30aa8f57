"""IFCA: several models, and each client trains the one that fits its samples best.

Ghosh et al., "An Efficient Framework for Clustered Federated Learning", 2020. A client receives all
models and trains the one with the smallest loss on its training samples; the server averages the
uploads of each model separately.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.errors import UnskewError
from unskew.methods.common.base import About, Client, Finished, Server, Start, Tensors, Trained
from unskew.methods.common.client_loss import training_loss
from unskew.methods.common.multi_model import Assignment, Count, MultiModelMethod
from unskew.models.layout import Layout
from unskew.utils.rng import torch_generator
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class IFCA(MultiModelMethod):
    """Several models, of which each client trains the one that fits its samples best."""

    models: Count = 4
    """Number of models. 1 is FedAvg."""

    cluster_slots: ClassVar[frozenset[str]] = MultiModelMethod.cluster_slots | {"travels"}
    about: ClassVar[About] = About(
        title="Clients choose among models by their loss",
        paper="Ghosh et al. 2020",
        kind="several models",
        level="personal",
        down="all models",
        up="model, 1 number",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"models": (2, 3, 4)}

    def initial_models(self, vector: Tensor, layout: Layout) -> Tensor:
        """Return the initial model, and copies with the values of each tensor shuffled.

        Initial weights are drawn independently, so a shuffled tensor is another random draw.
        """
        return torch.stack([_shuffled(vector, layout, number) for number in range(self.models)])

    def begin(self, vector: Tensor, layout: Layout, earlier: Mapping[str, Server]) -> Server:
        """Store the mask of the coordinates that are sent, unless all are."""
        server, mask = super().begin(vector, layout, earlier), self.travels(layout)
        if mask is None:
            return server
        return replace(server, slots={**server.slots, "travels": mask})

    def model_to_send(self, server: Server, client: int) -> int:
        """Send the first model as the payload's model; :meth:`broadcast` adds the others."""
        del server, client
        return 0

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send all models."""
        payload = super().broadcast(server, client)
        if set(payload) != {"model"}:
            raise UnskewError("method: ifca cannot be composed with one that sends extra tensors")
        others, mask = server.slots["models"][1:], server.slots.get("travels")
        return {**payload, "others": others if mask is None else others[:, mask]}

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Start from the model with the smallest loss on the client's training samples."""
        best, chosen = self._chosen(client, payload, state)
        start = super().prepare(client, chosen, state)
        return replace(start, refs={**start.refs, "cluster": torch.tensor(best)})

    def received(self, client: Client, payload: Tensors, state: Tensors) -> Tensor:
        """Return the received model that the client chooses."""
        if "others" in payload:
            _, payload = self._chosen(client, payload, state)
        return super().received(client, payload, state)

    def _chosen(self, client: Client, payload: Tensors, state: Tensors) -> tuple[int, Tensors]:
        """Return the number of the best-fitting model, and a payload with that model alone."""
        layout = client.network.layout
        candidates = [
            _received(payload, number, self.travels(layout)) for number in range(self.models)
        ]
        losses = [
            training_loss(client, self.with_kept(layout, model, state)) for model in candidates
        ]
        best = losses.index(min(losses))
        return best, {"model": candidates[best]}

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the number of the chosen model."""
        finished = super().finish(client, start, trained, state)
        return replace(
            finished, extras={**finished.extras, "cluster": start.refs["cluster"].clone()}
        )

    def assign(self, server: Server, uploads: Uploads) -> Assignment:
        """Assign uploads by the clients' choices."""
        return Assignment(server, torch.stack(list(uploads.extras["cluster"])))


def _received(payload: Tensors, number: int, travels: Tensor | None) -> Tensor:
    """Return one of the received models; coordinates that are not sent are the first model's."""
    if number == 0 or travels is None:
        return payload["model"] if number == 0 else payload["others"][number - 1]
    model = payload["model"].clone()
    model[travels] = payload["others"][number - 1]
    return model


def _shuffled(vector: Tensor, layout: Layout, number: int) -> Tensor:
    shuffled = vector.clone()
    if number:
        for place, entry in enumerate(layout.parameters):
            noise = torch_generator(0, "further models", number, place)
            order = torch.randperm(entry.size, generator=noise)
            shuffled[entry.slice] = vector[entry.slice][order]
    return shuffled
