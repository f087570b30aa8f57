"""FedRep: FedPer with the head trained first, then the body.

Collins, Hassani, Mokhtari and Shakkottai, "Exploiting Shared Representations for Personalized
Federated Learning", 2021. The head is trained for some epochs on the received body, then the body
with that head.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.composition.method import Method
from unskew.composition.parts import ClientSide
from unskew.composition.values import About, ExtraTraining
from unskew.methods.common.head import head_mask
from unskew.methods.fedper import FedPer
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedRep(FedPer, ClientSide):
    """FedPer with the head trained first, and the body after it."""

    head_epochs: Annotated[int, Field(ge=1)] = 4
    """Epochs of the head per round, before the body is trained."""

    about: ClassVar[About] = About(
        title="Head first, then the shared body",
        paper="Collins et al. 2021",
        kind="personal",
        level="personal",
        down="body",
        up="body",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"head_epochs": (1, 4, 10)}

    repeats_training = True

    def extra_trainings(self, method: Method) -> tuple[ExtraTraining, ...]:
        """Train the head alone, on the received body."""
        return (ExtraTraining("head", method, self.head_epochs, head_mask),)

    def freezes(self, layout: Layout) -> Tensor:
        """Freeze the head while the body is trained."""
        return head_mask(layout)
