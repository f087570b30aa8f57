"""Server optimisers: the round's aggregate is a direction to step in, not the new model itself.

Reddi et al., "Adaptive Federated Optimization", 2021 (FedAdam, FedYogi, FedAdagrad) and Hsu et al.
2019 (FedAvgM). A server optimiser applies to the result of any weighting or aggregation rule, so
``fedadam+ida`` works. Let D be the difference between that result and the global model. The
adaptive optimisers keep a first moment ``m = b1 m + (1 - b1) D`` and a second moment v of D^2, and
step by ``w += server_lr m / (sqrt(v) + tau)``. Buffers are not optimised: they take the round's
values.
"""

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.composition.parts import Aspect, ServerSide
from unskew.composition.search_space import LogRange, SearchSpace
from unskew.composition.values import Server, Tensors
from unskew.utils.specs import OPTIONS

Positive = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class AdaptiveServerOptimizer(ServerSide):
    """The base of the adaptive server optimisers, which differ in the second moment."""

    server_lr: Positive = 0.1
    """Size of the server's step where changes are steady; fedadagrad's shrinks over the rounds."""
    beta1: Decay = 0.9
    """Decay of the first moment, the direction of a step. 0: this round's change alone."""
    beta2: Decay = 0.99
    """Decay of the second moment; fedadagrad, which sums the squares, ignores it."""
    tau: Positive = 1e-3
    """Added to the root of the second moment, which starts at tau^2; larger is less adaptive."""

    grid: ClassVar[SearchSpace] = {"server_lr": LogRange(1e-3, 1.0)}

    replaces = frozenset({Aspect.SERVER_STEP})

    def step(self, server: Server, vector: Tensor, uploads: Uploads) -> Server:
        """Step along the first moment, with coordinates scaled by the second."""
        change, state = change_of(server, vector, uploads), server.state
        first = self.beta1 * state_or_zeros(state, "first", change) + (1 - self.beta1) * change
        start = torch.full_like(change, self.tau**2)  # as published: v starts at tau^2
        second = self.second_moment(state.get("second", start), change.square())
        step = self.server_lr * first / (second.sqrt() + self.tau)
        moved = after_step(server, vector, uploads, step)
        return Server(moved, {"first": first, "second": second})

    def second_moment(self, old: Tensor, square: Tensor) -> Tensor:
        """Return the second moment after a round whose squared change is ``square``."""
        raise NotImplementedError


def change_of(server: Server, vector: Tensor, uploads: Uploads) -> Tensor:
    """Return the difference between the round's aggregate and the global model."""
    return (vector - server.vector)[: uploads.layout.trainable]


def state_or_zeros(state: Tensors, name: str, like: Tensor) -> Tensor:
    """Return a tensor of the server's state, or zeros in the shape of ``like``."""
    return state[name] if name in state else torch.zeros_like(like)


def after_step(server: Server, vector: Tensor, uploads: Uploads, step: Tensor) -> Tensor:
    """Return the global vector after a step; buffers and counters are the round's own."""
    moved = vector.clone()
    moved[: uploads.layout.trainable] = server.vector[: uploads.layout.trainable] + step
    return moved
