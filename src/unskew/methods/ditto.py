"""Ditto: besides the global model, each client trains a personal model that stays near it.

Li, Hu, Beirami and Smith, "Ditto: Fair and Robust Federated Learning Through Personalization",
2021. Client k minimises ``F_k(v) + lam/2 ||v - w_global||^2`` over its own v; w is FedAvg's.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.methods.common.base import (
    About,
    Client,
    ExtraTraining,
    Finished,
    Method,
    Server,
    Start,
    Tensors,
    Trained,
)
from unskew.methods.fedprox import FedProx
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Ditto(Method):
    """FedAvg, and personal models regularised towards the received one."""

    lam: Annotated[float, Field(ge=0)] = 0.1
    """Strength of the proximal term towards the received model. 0: personal models train alone."""
    epochs: Annotated[int, Field(ge=1)] | None = None
    """Epochs of the personal training; None: the run's."""

    about: ClassVar[About] = About(
        title="A personal model near the global one",
        paper="Li et al. 2021",
        kind="personal",
        level="personal",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"lam": (0.05, 0.1, 0.2, 1.0, 2.0)}

    def extra_trainings(self) -> tuple[ExtraTraining, ...]:
        """Train the personal model, before the received one is trained."""
        personal = _Personal(mu=self.lam, global_method=self)
        return (*super().extra_trainings(), ExtraTraining("personal", personal, self.epochs))

    def personal(self, layout: Layout, server: Server, state: Tensors) -> Tensor:
        """Return the client's personal model; the global one, if the client never trained."""
        return state.get("personal", super().personal(layout, server, state))


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class _Personal(FedProx):
    """The training of the personal model: FedProx's objective, resumed from its last state."""

    global_method: Method
    """The method of the round, which reads the received model and the client's state."""

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        received = self.global_method.received(client, payload, state)
        center = received[: client.network.layout.trainable]
        return Start(state.get("personal", received), {"center": center})

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        del client, start
        return Finished(state={**state, "personal": trained.vector})
