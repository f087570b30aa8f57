"""IFCA: several models, and each client trains the one that fits its samples best.

Ghosh et al., "An Efficient Framework for Clustered Federated Learning", 2020. A client receives all
models and trains the one with the smallest loss on its training samples; the server averages the
uploads of each model separately.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.composition.multi_model import Assignment, Count, ModelSelector
from unskew.composition.upload_values import Value
from unskew.composition.values import (
    About,
    Beginning,
    Client,
    Finished,
    Server,
    Start,
    Tensors,
    Trained,
)
from unskew.methods.common.client_loss import training_loss
from unskew.models.layout import Layout
from unskew.utils.rng import torch_generator
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class IFCA(ModelSelector):
    """Several models, of which each client trains the one that fits its samples best."""

    models: Count = 4
    """Number of models. 1 is FedAvg."""

    about: ClassVar[About] = About(
        title="Clients choose among models by their loss",
        paper="Ghosh et al. 2020",
        kind="several models",
        level="personal",
        down="all models",
        up="model, 1 number",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"models": (2, 3, 4)}

    @property
    def receives(self) -> Mapping[str, Value]:
        """The number of the chosen model."""
        return {"cluster": Value((), torch.int64, low=0, high=self.models - 1, times=None)}

    def initial_models(self, vector: Tensor, layout: Layout) -> Tensor:
        """Return the initial model, and copies with the values of each tensor shuffled.

        Initial weights are drawn independently, so a shuffled tensor is another random draw.
        """
        return torch.stack([_shuffled(vector, layout, number) for number in range(self.models)])

    def begin(self, beginning: Beginning) -> Tensors:
        """Store the mask of the coordinates that are sent, unless all are."""
        return {} if beginning.sent_mask is None else {"sent_mask": beginning.sent_mask}

    def sent(self, server: Server, client: int) -> tuple[Sequence[int], Tensor]:
        """Send all models; the first is the payload's model."""
        models = server.state["models"]
        return range(len(models)), models[0]

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the models after the first."""
        others, mask = server.state["models"][1:], server.state.get("sent_mask")
        return {"others": others if mask is None else others[:, mask]}

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Start from the model with the smallest loss on the client's training samples."""
        candidates = [start.received]
        for other in payload["others"]:
            candidates.append(_complete(other, start.received, client.sent_mask))
        losses = [training_loss(client, model) for model in candidates]
        best = losses.index(min(losses))
        chosen = candidates[best]
        return replace(start, vector=chosen, received=chosen, refs={"cluster": torch.tensor(best)})

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the number of the chosen model."""
        finished = super().finish(client, start, trained, state)
        return replace(finished, extras={"cluster": start.refs["cluster"].clone()})

    def assign(self, server: Server, uploads: Uploads) -> Assignment:
        """Assign uploads by the clients' choices."""
        return Assignment(server, torch.stack(list(uploads.extras["cluster"])))


def _complete(sent: Tensor, first: Tensor, sent_mask: Tensor | None) -> Tensor:
    """Return a received model; coordinates that are not sent are the client's or the first's."""
    if sent_mask is None:
        return sent
    model = first.clone()
    model[sent_mask] = sent
    return model


def _shuffled(vector: Tensor, layout: Layout, number: int) -> Tensor:
    shuffled = vector.clone()
    if number:
        for place, entry in enumerate(layout.parameters):
            noise = torch_generator(0, "further models", number, place)
            order = torch.randperm(entry.size, generator=noise)
            shuffled[entry.slice] = vector[entry.slice][order]
    return shuffled
