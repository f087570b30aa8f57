"""What a client does by itself: stages in which its network never leaves it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.methods.common.base import (
    SAMPLE_WEIGHTS,
    Client,
    Finished,
    Method,
    Server,
    Start,
    Tensors,
    Trained,
)
from unskew.methods.common.once import having_reached, with_news
from unskew.methods.feddisk.federated import learned_density
from unskew.methods.feddisk.global_density import one_for_all
from unskew.methods.feddisk.held_out import held_out, training_weights
from unskew.methods.feddisk.weights import weigh
from unskew.models.functional import Batch
from unskew.models.layout import Layout
from unskew.utils.rng import stream, uniforms
from unskew.utils.specs import OPTIONS

DENSITY = "feddisk.density"
PREFIX = "feddisk."
"""Of everything a client keeps for the stages and may forget after them."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class OnDevice(Method):
    """Every client trains a network of its own, and keeps the one its held-out samples like best.

    The server sends the global density once to each client, and hears from each only whether it
    still gets better. A stage that can tell density ratios leaves sample weights behind.
    """

    validation: Annotated[float, Field(ge=0, lt=1)] = 0.15
    patience: Annotated[int, Field(ge=1)] = 3
    clip: Annotated[float, Field(gt=1)] = 10.0
    mean_one: bool = True

    stage: ClassVar[str]

    # On the server.

    def begin(self, vector: Tensor, layout: Layout, earlier: Mapping[str, Server]) -> Server:
        """Have the global density ready to be sent."""
        server = super().begin(vector, layout, earlier)
        if "density" not in earlier:
            return server
        return replace(server, slots={"density": learned_density(earlier["density"])})

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the density to a client that has not got it yet; the rest it has by itself."""
        return with_news(super().broadcast(server, client), server, client, "density")

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Note who has the density, who still gets better, and what the weights are worth."""
        server = having_reached(server, uploads)
        told = {name: torch.stack(list(values)) for name, values in uploads.extras.items()}
        return replace(server, slots={**server.slots, **told}), dict(told)

    def is_done(self, server: Server) -> bool:
        """Stop when nobody has got better for a while."""
        waited = server.slots.get("waited")
        return waited is not None and bool((waited >= self.patience).all())

    def travels(self, layout: Layout) -> Tensor | None:
        """Keep everything on the client."""
        return torch.zeros(layout.size, dtype=torch.bool)

    # On the client.

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Go on from the client's own network, on the samples that are not held out."""
        held = held_out(client.id, len(client.y), self.validation)
        return Start(
            state.get(self._key("last"), payload["model"]),
            self.references(client, _with_density(payload, state)),
            training_weights(held),
        )

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Keep the better network, and weigh the samples by it if this stage can."""
        if not len(client.y):
            return Finished(state=state)
        state = {**state, **self._kept_density(start), self._key("last"): trained.vector}
        loss = torch.tensor(self._validation_loss(client, trained.vector, start))
        improved = bool(loss < state.get(self._key("loss"), torch.tensor(torch.inf)))
        if improved:
            state[self._key("best")], state[self._key("loss")] = trained.vector, loss
            state[self._key("waited")] = torch.tensor(0.0)
        else:
            state[self._key("waited")] = state.get(self._key("waited"), torch.tensor(0.0)) + 1
        if improved or not {self._key("best"), self._key("effective")} <= set(state):
            best = state.get(self._key("best"), trained.vector)
            log_ratio = self.log_ratio(client, best, start)
            if log_ratio is not None:
                weights = weigh(log_ratio, self.clip, mean_one=self.mean_one)
                state[SAMPLE_WEIGHTS] = weights.values
                state[self._key("effective")] = torch.tensor(weights.effective)
                state[self._key("coverage")] = torch.tensor(weights.coverage)
        told = ("waited", "effective", "coverage")
        extras = {name: state[self._key(name)] for name in told if self._key(name) in state}
        return Finished({**extras, "validation_loss": loss}, state)

    def references(self, client: Client, state: Tensors) -> Tensors:
        """Return what the objective refers to."""
        del client
        return {"density": one_for_all(state[DENSITY])} if DENSITY in state else {}

    def log_ratio(self, client: Client, best: Tensor, start: Start) -> Tensor | None:
        """Return ``log p(x_i)/q(x_i)`` of the client's samples; None where the stage can't tell."""
        del client, best, start
        return None

    def _validation_loss(self, client: Client, vector: Tensor, start: Start) -> float:
        """Return the objective on the held-out samples, or on all if none are held out."""
        network, trainable = client.network, client.network.layout.trainable
        held = held_out(client.id, len(client.y), self.validation)
        rows = held if bool(held.any()) else ~held
        x, count = network.inputs(client.x[rows]), int(rows.sum())
        noise = None
        if noise_per_sample := self.noise_per_sample(network):
            luck = uniforms(
                stream(0, "held out"), np.array([client.id]), 0, count, noise_per_sample
            )
            noise = torch.from_numpy(luck[0])
        batch = Batch(x, client.y[rows].long(), torch.full((count,), 1 / count), noise)
        buffers = network.buffers_of(vector[trainable:])
        with torch.no_grad():
            return float(self.objective(network, vector[:trainable], buffers, batch, start.refs))

    def _kept_density(self, start: Start) -> Tensors:
        return {DENSITY: start.refs["density"]} if "density" in start.refs else {}

    def _key(self, name: str) -> str:
        return f"{PREFIX}{self.stage}.{name}"


def _with_density(payload: Tensors, state: Tensors) -> Tensors:
    """Return the state with a density that has just come."""
    return {**state, DENSITY: payload["density"]} if "density" in payload else state
