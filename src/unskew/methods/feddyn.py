"""FedDyn: a dynamic regulariser aligns the clients' optima with the global one.

Acar et al., "Federated Learning Based on Dynamic Regularization", 2021. Client k minimises
``F_k(w) - <g_k, w> + alpha/2 ||w - w_global||^2``; g_k is its gradient at the end of its last
local training.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, uniform
from unskew.composition.parts import Aspect, ClientSide, ServerSide
from unskew.composition.values import (
    About,
    Client,
    Finished,
    Server,
    Start,
    Step,
    Tensors,
    Trained,
)
from unskew.methods.common.shared_coordinates import SharedCoordinates
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedDyn(ClientSide, ServerSide):
    """Mean, with a regulariser that each client updates every round."""

    alpha: Annotated[float, Field(gt=0)] = 0.01
    """Strength of the quadratic term, and step size of the linear term's coefficients."""
    evaluate: Literal["mean", "sent"] = "mean"
    """The model to evaluate: the "mean" of the round's clients, as the authors do, or the "sent"
    one, which is that mean minus h/alpha."""

    needs_single_training = True
    adds = frozenset({Aspect.LOCAL_LOSS, Aspect.WEIGHTS})
    replaces = frozenset({Aspect.SERVER_STEP, Aspect.GLOBAL_MODEL})
    about: ClassVar[About] = About(
        title="Dynamic regularisation", paper="Acar et al. 2021", kind="objective"
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"alpha": (0.0001, 0.001, 0.01, 0.1)}

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Keep the centre of the quadratic term and the slope of the linear term."""
        shared = SharedCoordinates.of(client)
        refs = {
            "center": start.received[: shared.trainable],
            "slope": shared.spread(_slope(shared, state)),
        }
        return replace(start, refs=refs)

    def proximal_strength(self) -> float:
        """Return the strength of the quadratic term."""
        return self.alpha

    def loss_term(self, step: Step, refs: Tensors) -> Tensor:
        """Add ``-<g_k, w> + alpha/2 ||w - w_global||^2``; the linear term adds only a gradient."""
        linear = (refs["slope"] * step.weights).sum()
        quadratic = self.alpha / 2 * (step.weights - refs["center"]).square().sum()
        return quadratic - (linear - linear.detach())

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Keep ``g_k - alpha (w_k - w_global)``."""
        shared = SharedCoordinates.of(client)
        update = shared.take(trained.vector) - shared.take(start.refs["center"])
        return Finished(state={"slope": _slope(shared, state) - self.alpha * update})

    def client_weights(self, server: Server) -> ClientWeighting:
        """Weight all clients equally, as their slopes are."""
        return uniform()

    def step(self, server: Server, vector: Tensor, uploads: Uploads) -> Server:
        """Update h, the mean slope over all clients; send the mean minus h/alpha, and keep it."""
        trainable = uploads.layout.trainable
        clients, share = len(uploads), len(uploads) / uploads.num_clients_total
        update = uploads.parameters.sum(0) / clients - uploads.previous[:trainable]
        slope = -self.alpha * share * update
        if "slope" in server.state:
            slope += server.state["slope"]
        sent = vector.clone()
        sent[:trainable] -= slope / self.alpha
        return Server(sent, {"slope": slope, "mean": vector[:trainable]})

    def model(self, server: Server) -> Tensor:
        """Return the mean of the round's clients, or the model that is sent."""
        if self.evaluate == "sent" or "mean" not in server.state:
            return server.vector
        mean = server.state["mean"]
        return torch.cat([mean, server.vector[len(mean) :]])  # statistics are sent unchanged


def _slope(shared: SharedCoordinates, state: Tensors) -> Tensor:
    """Return the client's slope g_k, which starts at zero."""
    return state["slope"] if "slope" in state else shared.zeros()
