"""AFL: the model is trained for the worst mixture of the clients.

Mohri, Sivek and Suresh, "Agnostic Federated Learning", 2019. ``min_w max_lambda sum_k lambda_k
F_k(w)``: gradient descent on the model with client weights lambda, and gradient ascent on lambda
towards the clients with a high loss.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.simplex import nearest_on_simplex
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics
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
from unskew.methods.common.client_loss import training_loss
from unskew.utils.specs import OPTIONS

_UNKNOWN = -1.0
"""The weight of a client that has not taken part yet."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class AFL(Method):
    """Weights that start uniform and follow the clients' losses."""

    mixture_lr: Annotated[float, Field(ge=0)] = 0.1
    """Learning rate of the weights: each round adds mixture_lr times the loss. 0 is the Mean."""

    about: ClassVar[About] = About(
        title="The worst mixture of clients",
        paper="Mohri et al. 2019",
        kind="server",
        up="model, 1 number",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"mixture_lr": (0.001, 0.01, 0.1)}

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the loss of the received model."""
        finished = super().finish(client, start, trained, state)
        loss = torch.tensor(training_loss(client, start.vector))
        return replace(finished, extras={**finished.extras, "loss_before": loss})

    def weightings(self, server: Server) -> tuple[ClientWeighting, ...]:
        """Add the mixture's weights of the round's clients."""

        def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
            return server.slots["mixture"][list(uploads.clients)], {}

        return (*super().weightings(server), ClientWeighting("agnostic", derive))

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Aggregate by the mixture, then update it by the losses of the round's initial model.

        If the mixture gives every client of the round weight 0, the model stays unchanged.
        """
        ids = list(uploads.clients)
        mixture = _with_new_clients(server.slots.get("mixture", torch.empty(0).double()), ids)
        server = replace(server, slots={**server.slots, "mixture": mixture})
        if bool(mixture[ids].any()):
            updated, diagnostics = super().aggregate(server, uploads)
        else:
            updated, diagnostics = server, {"weights": mixture[ids]}
        losses = torch.stack(list(uploads.extras["loss_before"])).double()
        next_mixture = mixture.clone()
        next_mixture[ids] += self.mixture_lr * losses
        known = mixture != _UNKNOWN
        next_mixture[known] = nearest_on_simplex(next_mixture[known])
        updated = replace(updated, slots={**updated.slots, "mixture": next_mixture})
        diagnostics = {**diagnostics, "loss_before": losses, "next mixture": next_mixture[ids]}
        return updated, diagnostics


def _with_new_clients(mixture: Tensor, ids: list[int]) -> Tensor:
    """Return the mixture with an even share for each client that takes part for the first time."""
    size = max(len(mixture), max(ids) + 1)
    extended = torch.full((size,), _UNKNOWN, dtype=torch.float64)
    extended[: len(mixture)] = mixture
    known = extended != _UNKNOWN
    new = [k for k in ids if not bool(known[k])]
    total = int(known.sum()) + len(new)
    if new:
        extended[known] *= int(known.sum()) / total
        extended[new] = 1 / total
    return extended
