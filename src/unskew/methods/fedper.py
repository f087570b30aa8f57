"""FedPer and FedRep: a shared body, and a head of their own for each client.

Arivazhagan, Aggarwal, Singh and Choudhary, "Federated Learning with Personalization Layers", 2019:
body and head are trained together. Collins, Hassani, Mokhtari and Shakkottai, "Exploiting Shared
Representations for Personalized Federated Learning", 2021: first the head for some epochs with the
received body, then the body with that head.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.methods.common.base import About, ExtraTraining, Method, Server
from unskew.methods.common.head import head_mask
from unskew.models.layout import Layout
from unskew.models.masks import joined, without
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedPer(Method):
    """FedAvg of the body; the head never leaves its client."""

    fallback: Literal["initial", "average"] = "initial"
    """Head of the global model and of newcomers: the "initial" one, or the "average" of the
    clients' heads, who then send theirs for it."""

    about: ClassVar[About] = About(
        title="Personal heads",
        paper="Arivazhagan et al. 2019",
        kind="personal",
        level="personal",
        down="body",
        up="body",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {}

    def begin(self, vector: Tensor, layout: Layout, earlier: Mapping[str, Server]) -> Server:
        """Make sure that there is a head."""
        head_mask(layout)
        return super().begin(vector, layout, earlier)

    def travels(self, layout: Layout) -> Tensor | None:
        """Take the head out."""
        return without(super().travels(layout), head_mask(layout))

    def shares_on_upload(self, layout: Layout) -> Tensor | None:
        """Let the server average the heads, if it may see them."""
        lent = super().shares_on_upload(layout)
        return lent if self.fallback == "initial" else joined(lent, head_mask(layout))


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedRep(FedPer):
    """FedPer with the head trained first, and the body after it."""

    head_epochs: Annotated[int, Field(ge=1)] = 10
    """Epochs of the head in a round, before the body is trained."""

    about: ClassVar[About] = About(
        title="Head first, then the shared body",
        paper="Collins et al. 2021",
        kind="personal",
        level="personal",
        down="body",
        up="body",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"head_epochs": (1, 5, 10, 15)}

    def extra_trainings(self) -> tuple[ExtraTraining, ...]:
        """Train the head alone, on the received body."""
        return (
            *super().extra_trainings(),
            ExtraTraining("head", self, self.head_epochs, head_mask),
        )

    def trains(self, layout: Layout) -> Tensor | None:
        """Leave the head alone in the round's own training."""
        return without(super().trains(layout), head_mask(layout))
