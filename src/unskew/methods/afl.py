"""AFL: the model is trained for the worst mixture of the clients.

Mohri, Sivek and Suresh, "Agnostic Federated Learning", 2019. ``min_w max_lambda sum_k lambda_k
F_k(w)``: gradient descent on the model with client weights lambda, and gradient ascent on lambda
towards the clients with a high loss.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.simplex import nearest_on_simplex
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics
from unskew.composition.parts import Aspect, ClientSide, ServerSide
from unskew.composition.upload_values import Value, loss_value
from unskew.composition.values import About, Client, Finished, Server, Start, Tensors, Trained
from unskew.methods.common.client_loss import training_loss
from unskew.utils.specs import OPTIONS

_UNKNOWN = -1.0
"""The weight of a client that has not taken part yet."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class AFL(ClientSide, ServerSide):
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

    adds = frozenset({Aspect.WEIGHTS})

    @property
    def receives(self) -> Mapping[str, Value]:
        """The loss of the received model."""
        return {"loss_before": loss_value()}

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the loss of the received model."""
        return Finished({"loss_before": torch.tensor(training_loss(client, start.vector))})

    def receive(self, server: Server, uploads: Uploads) -> Tensors | None:
        """Add new clients to the mixture.

        If it gives every client of the round weight 0, the model stays as it is.
        """
        mixture = _mixture(server, uploads)
        return {"mixture": mixture} if bool(mixture[list(uploads.clients)].any()) else None

    def client_weights(self, server: Server) -> ClientWeighting:
        """Weight the round's clients by the mixture."""

        def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
            return server.state["mixture"][list(uploads.clients)], {}

        return ClientWeighting("agnostic", derive)

    def conclude(
        self, before: Server, after: Server, uploads: Uploads, diagnostics: Diagnostics
    ) -> tuple[Server, Diagnostics]:
        """Update the mixture by the losses of the round's initial model."""
        ids, mixture = list(uploads.clients), _mixture(before, uploads)
        losses = torch.stack(list(uploads.extras["loss_before"])).double()
        updated = mixture.clone()
        updated[ids] += self.mixture_lr * losses
        known = mixture != _UNKNOWN
        updated[known] = nearest_on_simplex(updated[known])
        found = {"loss_before": losses, "next mixture": updated[ids]}
        return Server(after.vector, {"mixture": updated}), found


def _mixture(server: Server, uploads: Uploads) -> Tensor:
    """Return the mixture with all clients of the round in it."""
    known = server.state.get("mixture", torch.empty(0).double())
    return _with_new_clients(known, list(uploads.clients))


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
