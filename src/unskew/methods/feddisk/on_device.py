"""Stages in which each client trains its own network, which never leaves it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics
from unskew.composition.parts import (
    Aspect,
    ClientSide,
    Personalization,
    ServerSide,
    Setup,
    WeightedMean,
)
from unskew.composition.upload_values import Value
from unskew.composition.values import (
    SAMPLE_WEIGHTS,
    Beginning,
    Client,
    Finished,
    Server,
    Start,
    Step,
    Tensors,
    Trained,
)
from unskew.methods.common.once import mark_received, send_once
from unskew.methods.feddisk.federated import learned_density
from unskew.methods.feddisk.global_density import shared_copy
from unskew.methods.feddisk.held_out import held_out, training_weights
from unskew.methods.feddisk.weights import weights_from
from unskew.models.functional import Batch
from unskew.models.layout import Layout
from unskew.utils.rng import stream, uniforms
from unskew.utils.specs import OPTIONS

DENSITY = "density"
_ROUNDING = 1e-6
"""How far rounding may carry a fraction above one."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class OnDevice(ClientSide, ServerSide, Personalization, Setup):
    """Every client trains its own network and keeps the one with the best validation loss.

    The server sends the global density once to each client, and each client reports only whether it
    still improves. A stage that estimates density ratios also stores sample weights.
    """

    validation: Annotated[float, Field(ge=0, lt=1)] = 0.15
    patience: Annotated[int, Field(ge=1)] = 3
    clip: Annotated[float, Field(gt=1)] = 10.0
    mean_one: bool = True

    stage_name: ClassVar[str]
    replaces = frozenset({Aspect.COMBINATION, Aspect.WEIGHTS, Aspect.LOSS})

    @property
    def receives(self) -> Mapping[str, Value]:
        """Rounds without progress, a loss, and what a stage of ratios says of its weights."""
        fraction = Value(low=0.0, high=1.0 + _ROUNDING, times=None, optional=True)
        return {
            "waited": Value(low=0.0, floor=1.0),
            "validation_loss": Value(may_be_undefined=True, floor=1.0),
            "effective": fraction,
            "coverage": fraction,
        }

    # On the server.

    def begin(self, beginning: Beginning) -> Tensors:
        """Store the global density, to be sent."""
        if "density" not in beginning.earlier:
            return {}
        return {DENSITY: learned_density(beginning.earlier["density"])}

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the density to a client that does not have it yet."""
        return send_once(server, client, DENSITY)

    def receive(self, server: Server, uploads: Uploads) -> Tensors:
        """Store which clients have the density, and what clients report."""
        return {**server.state, **mark_received(server, uploads), **_reported(uploads)}

    def combine(
        self, server: Server, uploads: Uploads, mean: WeightedMean
    ) -> tuple[Tensor, Diagnostics]:
        """Leave the server's network as it is: each client has its own."""
        return uploads.previous, _reported(uploads)

    def is_done(self, server: Server) -> bool:
        """Stop when no client has improved for ``patience`` epochs."""
        waited = server.state.get("waited")
        return waited is not None and bool((waited >= self.patience).all())

    def stays(self, layout: Layout) -> Tensor:
        """Keep everything on the client."""
        return torch.ones(layout.size, dtype=torch.bool)

    def constant(self, layout: Layout) -> Tensor:
        """Do not keep the network twice: it is in the part's own state."""
        return self.stays(layout)

    # On the client.

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Resume training of the client's own network, on the samples that are not held out."""
        held = held_out(client.id, len(client.y), self.validation)
        vector = state.get(self._key("last"), start.received)
        refs = self.references(client, {**state, **payload})
        return replace(start, vector=vector, refs=refs, sample_weights=training_weights(held))

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Keep the better network, and the sample weights that follow from it, if any."""
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
                weights = weights_from(log_ratio, self.clip, mean_one=self.mean_one)
                state[SAMPLE_WEIGHTS] = weights.values
                state[self._key("effective")] = torch.tensor(weights.effective)
                state[self._key("coverage")] = torch.tensor(weights.coverage)
        reported = ("waited", "effective", "coverage")
        extras = {name: state[self._key(name)] for name in reported if self._key(name) in state}
        return Finished({**extras, "validation_loss": loss}, state)

    def references(self, client: Client, state: Tensors) -> Tensors:
        """Return the reference tensors of the objective."""
        del client
        return {"density": shared_copy(state[DENSITY])} if DENSITY in state else {}

    def log_ratio(self, client: Client, best: Tensor, start: Start) -> Tensor | None:
        """Return ``log p(x_i)/q(x_i)`` per sample; None if the stage does not estimate ratios."""
        del client, best, start
        return None

    def _validation_loss(self, client: Client, vector: Tensor, start: Start) -> float:
        """Return the loss on the held-out samples, or on all samples if none are held out."""
        network, trainable = client.network, client.network.layout.trainable
        held = held_out(client.id, len(client.y), self.validation)
        rows = held if bool(held.any()) else ~held
        x, count = network.inputs(client.x[rows]), int(rows.sum())
        noise = None
        if per_sample := self.noise_per_sample or network.goal.noise_per_sample:
            numbers = uniforms(stream(0, "held out"), np.array([client.id]), 0, count, per_sample)
            noise = torch.from_numpy(numbers[0])
        batch = Batch(
            x, client.y[rows].to(network.goal.target_dtype), torch.full((count,), 1 / count), noise
        )
        buffers = network.buffers_of(vector[trainable:])
        with torch.no_grad():
            step = Step(network, vector[:trainable], buffers, batch)
            return float((self.losses(step, start.refs) * batch.scale).sum())

    def losses(self, step: Step, refs: Tensors) -> Tensor:
        """Return the loss of the client's network per sample."""
        return step.network.losses(step.weights, step.buffers, step.batch)

    def _kept_density(self, start: Start) -> Tensors:
        return {DENSITY: start.refs["density"]} if "density" in start.refs else {}

    def _key(self, name: str) -> str:
        return f"{self.stage_name}.{name}"


def _reported(uploads: Uploads) -> dict[str, Tensor]:
    """Return what the clients report, one value per client."""
    return {name: torch.stack(list(values)) for name, values in uploads.extras.items()}
