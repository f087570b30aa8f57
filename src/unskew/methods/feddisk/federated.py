"""The global density: a MADE trained by FedAvg until the clients' validation loss rises."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics
from unskew.composition.parts import ClientSide, ServerSide, Setup
from unskew.composition.upload_values import Value
from unskew.composition.values import (
    About,
    Client,
    Finished,
    Server,
    Start,
    Tensors,
    Trained,
)
from unskew.methods.feddisk.held_out import held_out, training_weights
from unskew.models.functional import Batch
from unskew.utils.specs import OPTIONS

_MIN_LOSSES, _WINDOW = 6, 3
"""The stage stops early after at least 6 losses, if the last 3 are increasing."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FederatedDensity(ClientSide, ServerSide, Setup):
    """FedAvg of a density, with early stopping on samples that clients hold out."""

    validation: Annotated[float, Field(ge=0, lt=1)] = 0.15

    tensor_scope: ClassVar[str] = "feddisk"
    about: ClassVar[About] = About(
        title="Federated density", paper="Nguyen et al. 2023", kind="densities"
    )

    @property
    def receives(self) -> Mapping[str, Value]:
        """The total loss on the held-out samples, and their number, if any are held out."""
        if not self.validation:
            return {}
        return {"validation": Value((2,), low=(-math.inf, 0.0), floor=1.0)}

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Train on the samples that are not held out."""
        held = held_out(client.id, len(client.y), self.validation)
        return replace(start, sample_weights=training_weights(held))

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the received model's total loss on held-out samples, if any, and their number."""
        if not self.validation:
            return Finished(state=state)
        held = held_out(client.id, len(client.y), self.validation)
        losses = _losses(client, start.vector, held)
        validation = torch.tensor([float(losses.sum()), float(len(losses))])
        return Finished({"validation": validation}, state)

    def conclude(
        self, before: Server, after: Server, uploads: Uploads, diagnostics: Diagnostics
    ) -> tuple[Server, Diagnostics]:
        """Keep the best model so far and the losses."""
        if not self.validation:
            return after, {"validation_loss": torch.tensor(math.nan)}
        total, count = torch.stack(list(uploads.extras["validation"])).double().sum(0)
        loss = total / count  # the loss of the model that was sent; NaN without held-out samples
        history = before.state.get("history", torch.empty(0, dtype=torch.float64))
        best = before.state.get("best", before.vector)
        if bool(loss.isfinite()):
            if not len(history) or bool(loss < history.min()):
                best = before.vector
            history = torch.cat([history, loss[None]])
        return Server(after.vector, {"history": history, "best": best}), {"validation_loss": loss}

    def is_done(self, server: Server) -> bool:
        """Stop when the last three losses increase, after at least six losses."""
        history = server.state.get("history", torch.empty(0))
        recent = history[-_WINDOW:]
        return len(history) >= _MIN_LOSSES and bool((recent.diff() > 0).all())


def learned_density(server: Server) -> Tensor:
    """Return the density of a finished stage: the best if the loss rose at the end, else the last.

    The loss of the last model is unknown: clients would report it in the following round.
    """
    history = server.state.get("history", torch.empty(0))
    rose = len(history) > 1 and bool(history[-1] > history.min())
    return server.state["best"] if rose else server.vector


def _losses(client: Client, vector: Tensor, rows: Tensor) -> Tensor:
    network = client.network
    x = network.inputs(client.x[rows])
    trainable = network.layout.trainable
    batch = Batch(x, client.y[rows], torch.ones(len(x)))
    with torch.no_grad():
        return network.losses(vector[:trainable], network.buffers_of(vector[trainable:]), batch)
