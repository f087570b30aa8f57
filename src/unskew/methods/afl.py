"""AFL: the model is trained for the worst mixture of the clients.

Mohri, Sivek and Suresh, "Agnostic Federated Learning", 2019. ``min_w max_lambda sum_k lambda_k
F_k(w)``: the model descends with the weights lambda, which themselves ascend towards the clients
whose loss is high.
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
from unskew.aggregation.weighting import ClientWeighting, Reasons
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
from unskew.methods.common.own_loss import own_loss
from unskew.utils.specs import OPTIONS

_UNKNOWN = -1.0


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class AFL(Method):
    """Weights that start even and follow the clients' losses."""

    rate: Annotated[float, Field(ge=0)] = 0.1
    """How fast weights follow the losses: a round adds rate times the loss. 0 is the Mean."""

    about: ClassVar[About] = About(
        title="The worst mixture of clients",
        paper="Mohri et al. 2019",
        kind="server",
        up="model, 1 number",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"rate": (0.001, 0.01, 0.1)}

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the loss before training."""
        finished = super().finish(client, start, trained, state)
        loss = torch.tensor(own_loss(client, start.vector))
        return replace(finished, extras={**finished.extras, "loss_before": loss})

    def weightings(self, server: Server) -> tuple[ClientWeighting, ...]:
        """Add the mixture's weights of the clients that take part."""

        def derive(uploads: Uploads) -> tuple[Tensor, Reasons]:
            return server.slots["mixture"][list(uploads.clients)], {}

        return (*super().weightings(server), ClientWeighting("agnostic", derive))

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Combine by the mixture, then move it along the losses, both as of this round's start.

        If the mixture has ruled out everybody who took part, the model stays.
        """
        ids = list(uploads.clients)
        mixture = _joined(server.slots.get("mixture", torch.empty(0).double()), ids)
        server = replace(server, slots={**server.slots, "mixture": mixture})
        if bool(mixture[ids].any()):
            updated, told = super().aggregate(server, uploads)
        else:
            updated, told = server, {"weights": mixture[ids]}
        losses = torch.stack(list(uploads.extras["loss_before"])).double()
        moved = mixture.clone()
        moved[ids] += self.rate * losses
        known = mixture != _UNKNOWN
        moved[known] = nearest_on_simplex(moved[known])
        updated = replace(updated, slots={**updated.slots, "mixture": moved})
        return updated, {**told, "loss_before": losses, "next mixture": moved[ids]}


def _joined(mixture: Tensor, ids: list[int]) -> Tensor:
    """Let clients join the mixture that have not been heard of, each with an even share."""
    size = max(len(mixture), max(ids) + 1)
    joined = torch.full((size,), _UNKNOWN, dtype=torch.float64)
    joined[: len(mixture)] = mixture
    known = joined != _UNKNOWN
    new = [k for k in ids if not bool(known[k])]
    everybody = int(known.sum()) + len(new)
    if new:
        joined[known] *= int(known.sum()) / everybody
        joined[new] = 1 / everybody
    return joined
