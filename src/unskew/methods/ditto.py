"""Ditto: besides the global model, each client trains a personal model that stays near it.

Li, Hu, Beirami and Smith, "Ditto: Fair and Robust Federated Learning Through Personalization",
2021. Client k minimises ``F_k(v) + lam/2 ||v - w_global||^2`` over its own v; w is FedAvg's.
"""

from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.composition.method import Method
from unskew.composition.parts import Aspect, ClientSide, Personalization
from unskew.composition.values import (
    About,
    Client,
    ExtraTraining,
    Finished,
    Start,
    Tensors,
    Trained,
)
from unskew.methods.fedprox import FedProx
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Ditto(ClientSide, Personalization):
    """FedAvg, and personal models regularised towards the received one."""

    lam: Annotated[float, Field(ge=0)] = 0.1
    """Strength of the proximal term towards the received model. 0: personal models train alone."""
    epochs: Annotated[int, Field(ge=1)] | None = None
    """Epochs of the personal training; None: the run's."""

    tensor_scope: ClassVar[str] = "ditto"
    about: ClassVar[About] = About(
        title="A personal model near the global one",
        paper="Li et al. 2021",
        kind="personal",
        level="personal",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"lam": (0.05, 0.1, 0.2, 1.0, 2.0)}

    replaces = frozenset({Aspect.PERSONAL_MODEL})

    def extra_trainings(self, method: Method) -> tuple[ExtraTraining, ...]:
        """Train the personal model, before the received one is trained."""
        personal = _PersonalTraining(parts=(FedProx(mu=self.lam),), round_method=method)
        return (ExtraTraining("personal", personal, self.epochs),)

    def personal(self, model: Tensor, state: Tensors) -> Tensor:
        """Return the client's personal model; the global one, if the client never trained."""
        return state.get("personal", model)


_STATE = f"{Ditto.tensor_scope}/personal"


@plain_dataclass(frozen=True, kw_only=True)
class _PersonalTraining(Method):
    """The training of the personal model: FedProx's objective, resumed from its last state."""

    round_method: Method
    """The method of the round, which reads the received model and the client's state."""

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        client = replace(client, sent_mask=self.round_method.sent_mask(client.network.layout))
        received = self.round_method.received(client, payload, state)
        start = Start(state.get(_STATE, received), received)
        return self._prepared(client, start, payload, state)

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        return Finished(state={**state, _STATE: trained.vector})
