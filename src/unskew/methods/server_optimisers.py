"""Server optimisers: the round's mean is a direction to step in, not the new model itself.

Reddi et al., "Adaptive Federated Optimization", 2021 (FedAdam, FedYogi, FedAdagrad) and Hsu et al.
2019 (FedAvgM). They take whatever the weighers or the rule made, so ``fedadam+ida`` works. With
D the difference of that vector to the global model: m = b1 m + (1 - b1) D, a second moment v of
D^2, and w += rate m / (sqrt(v) + tau). Buffers are not optimised: they take the round's values.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.methods.common.base import About, Method, Server
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS

Rate = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]


def _about(title: str, paper: str = "Reddi et al. 2021") -> About:
    return About(title=title, paper=paper, kind="server")


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedAvgM(Method):
    """Momentum on the server; with momentum 0 and rate 1 it is what it stands on."""

    server_rate: Rate = 1.0
    """Factor of the server's step."""
    server_momentum: Decay = 0.9
    """How much of the earlier rounds' directions goes on into a step. 0: nothing."""

    about: ClassVar[About] = _about("Server momentum", "Hsu et al. 2019")

    def step(self, server: Server, vector: Tensor, layout: Layout) -> Server:
        """Step along the running sum of directions."""
        change, slots = _direction(server, vector, layout), server.slots
        velocity = self.server_momentum * _slot(slots, "velocity", change) + change
        moved = _moved(server, vector, layout, self.server_rate * velocity)
        return Server(moved, {**slots, "velocity": velocity})


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Adaptive(Method):
    """What the adaptive optimisers share; they differ in the second moment."""

    server_rate: Rate = 0.1
    """Size of the server's step where changes are steady; fedadagrad's shrinks with the rounds."""
    beta1: Decay = 0.9
    """Share of the earlier rounds in the direction of a step. 0: this round's alone."""
    beta2: Decay = 0.99
    """How slowly the second moment changes; fedadagrad, a plain sum, ignores it."""
    tau: Rate = 1e-3
    """Added to the root of the second moment, which starts at tau^2; larger is less adaptive."""

    def step(self, server: Server, vector: Tensor, layout: Layout) -> Server:
        """Step along the first moment, coordinates scaled by the second."""
        change, slots = _direction(server, vector, layout), server.slots
        first = self.beta1 * _slot(slots, "first", change) + (1 - self.beta1) * change
        start = torch.full_like(change, self.tau**2)  # as published: v starts at tau^2
        second = self.second_moment(slots.get("second", start), change.square())
        step = self.server_rate * first / (second.sqrt() + self.tau)
        moved = _moved(server, vector, layout, step)
        return Server(moved, {**slots, "first": first, "second": second})

    def second_moment(self, old: Tensor, square: Tensor) -> Tensor:
        """Return the second moment after a round whose squared direction is ``square``."""
        raise NotImplementedError


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedAdam(Adaptive):
    """Adam on the server, without bias correction, as published."""

    about: ClassVar[About] = _about("Adam on the server")

    def second_moment(self, old: Tensor, square: Tensor) -> Tensor:
        """Return the moving average."""
        return self.beta2 * old + (1 - self.beta2) * square


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedYogi(Adaptive):
    """Yogi on the server: the second moment moves by steps of bounded size."""

    about: ClassVar[About] = _about("Yogi on the server")

    def second_moment(self, old: Tensor, square: Tensor) -> Tensor:
        """Return the old moment, moved towards the new square."""
        return old - (1 - self.beta2) * square * torch.sign(old - square)


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedAdagrad(Adaptive):
    """Adagrad on the server: the second moment only grows."""

    beta1: Decay = 0.0
    """Share of the earlier rounds in the direction of a step. 0: this round's alone."""

    about: ClassVar[About] = _about("Adagrad on the server")

    def second_moment(self, old: Tensor, square: Tensor) -> Tensor:
        """Return the sum."""
        return old + square


def _direction(server: Server, vector: Tensor, layout: Layout) -> Tensor:
    return (vector - server.vector)[: layout.trainable]


def _slot(slots: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
    return slots[name] if name in slots else torch.zeros_like(like)


def _moved(server: Server, vector: Tensor, layout: Layout, step: Tensor) -> Tensor:
    """Return the global vector after a step; buffers and counters are the round's own."""
    moved = vector.clone()
    moved[: layout.trainable] = server.vector[: layout.trainable] + step
    return moved
