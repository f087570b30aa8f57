"""FedDyn: a dynamic regulariser aligns the clients' optima with the global one.

Acar et al., "Federated Learning Based on Dynamic Regularization", 2021. Client k minimises
``F_k(w) - <g_k, w> + alpha/2 ||w - w_global||^2``; g_k is its gradient at the end of its last
local training.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, uniform
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
from unskew.methods.common.shared_coordinates import SharedCoordinates
from unskew.models.functional import Batch, Buffers, FunctionalModel
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedDyn(Method):
    """Mean, with a regulariser that each client updates every round."""

    alpha: Annotated[float, Field(gt=0)] = 0.01
    """Strength of the quadratic term, and step size of the linear term's coefficients."""
    evaluate: Literal["mean", "sent"] = "mean"
    """The model to evaluate: the "mean" of the round's clients, as the authors do, or the "sent"
    one, which is that mean minus h/alpha."""

    needs_single_training: ClassVar[bool] = True
    about: ClassVar[About] = About(
        title="Dynamic regularisation", paper="Acar et al. 2021", kind="objective"
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"alpha": (0.001, 0.01, 0.1)}

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Add the centre of the quadratic term and the slope of the linear term."""
        start = super().prepare(client, payload, state)
        shared = SharedCoordinates.of(self, client.network.layout)
        refs = {
            **start.refs,
            "dyn_center": self.received(client, payload, state)[: shared.trainable],
            "dyn_slope": shared.spread(_client_slope(shared, state)),
        }
        return replace(start, refs=refs)

    def proximal_strength(self) -> float:
        """Add the strength of the quadratic term."""
        return super().proximal_strength() + self.alpha

    def objective(
        self,
        network: FunctionalModel,
        weights: Tensor,
        buffers: Buffers,
        batch: Batch,
        refs: Tensors,
    ) -> Tensor:
        """Add ``-<g_k, w> + alpha/2 ||w - w_global||^2``; the linear term adds only a gradient."""
        loss = super().objective(network, weights, buffers, batch, refs)
        linear = (refs["dyn_slope"] * weights).sum()
        quadratic = self.alpha / 2 * (weights - refs["dyn_center"]).square().sum()
        return loss - (linear - linear.detach()) + quadratic

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Keep ``g_k - alpha (w_k - w_global)``."""
        finished = super().finish(client, start, trained, state)
        shared = SharedCoordinates.of(self, client.network.layout)
        update = shared.take(trained.vector) - shared.take(start.refs["dyn_center"])
        slope = _client_slope(shared, state) - self.alpha * update
        return Finished(finished.extras, {**finished.state, "dyn_slope": slope})

    def weightings(self, server: Server) -> tuple[ClientWeighting, ...]:
        """Weight all clients equally, as their slopes are."""
        return (*super().weightings(server), uniform())

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Update h, the mean slope over all clients, before the models are aggregated."""
        trainable = uploads.layout.trainable
        clients, share = len(uploads), len(uploads) / uploads.num_clients_total
        update = uploads.parameters.sum(0) / clients - uploads.previous[:trainable]
        slope = -self.alpha * share * update
        if "dyn_slope" in server.slots:
            slope += server.slots["dyn_slope"]
        server = replace(server, slots={**server.slots, "dyn_slope": slope})
        return super().aggregate(server, uploads)

    def step(self, server: Server, vector: Tensor, layout: Layout) -> Server:
        """Return a server that sends the mean minus h/alpha and keeps the mean itself."""
        sent = vector.clone()
        sent[: layout.trainable] -= server.slots["dyn_slope"] / self.alpha
        return Server(sent, {**server.slots, "dyn_mean": vector[: layout.trainable]})

    def model(self, server: Server) -> Tensor:
        """Return the mean of the round's clients, or the model that is sent."""
        if self.evaluate == "sent" or "dyn_mean" not in server.slots:
            return super().model(server)
        mean = server.slots["dyn_mean"]
        return torch.cat([mean, server.vector[len(mean) :]])  # statistics are sent unchanged


def _client_slope(shared: SharedCoordinates, state: Tensors) -> Tensor:
    """Return the client's slope g_k, which starts at zero."""
    return state["dyn_slope"] if "dyn_slope" in state else shared.zeros()
