"""FedBABU: the body is trained with a fixed head; clients fine-tune the head for evaluation.

Oh, Kim and Yun, "FedBABU: Toward Enhanced Representation for Federated Image Classification", 2022.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.errors import UnskewError
from unskew.methods.common.base import About, ExtraTraining, Method, Server
from unskew.methods.common.head import head_mask
from unskew.models.layout import Layout
from unskew.models.masks import none_if_empty, without
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedBABU(Method):
    """FedAvg of the body, with all heads at their initial values.

    Before evaluation each client fine-tunes the model on its own samples.
    """

    epochs: Annotated[int, Field(ge=1)] = 5
    """Epochs of fine-tuning before the personal model is evaluated."""
    part: Literal["head", "all"] = "head"
    """What is fine-tuned: the "head" alone, or "all" of the model."""

    about: ClassVar[About] = About(
        title="Body alone, head fine-tuned for evaluation",
        paper="Oh et al. 2022",
        kind="personal",
        level="personal",
        down="body",
        up="body",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"epochs": (1, 5, 10)}

    def begin(self, vector: Tensor, layout: Layout, earlier: Mapping[str, Server]) -> Server:
        """Check that the network has a body and a head."""
        if bool(head_mask(layout)[: layout.trainable].all()):
            raise UnskewError(
                "model: 'fedbabu' trains only the body, and this network is only a head; "
                "use one with a hidden layer, such as mlp"
            )
        return super().begin(vector, layout, earlier)

    def trains(self, layout: Layout) -> Tensor | None:
        """Freeze the head."""
        return without(super().trains(layout), head_mask(layout))

    def travels(self, layout: Layout) -> Tensor | None:
        """Exclude the head: all clients have it from the start."""
        return without(super().travels(layout), head_mask(layout))

    def kept(self, layout: Layout) -> Tensor | None:
        """Exclude the head: it is the same on all clients."""
        kept = super().kept(layout)
        return None if kept is None else none_if_empty(kept & ~head_mask(layout))

    def fine_tuning(self) -> ExtraTraining:
        """Train the head, or the whole model, on the client's own samples."""
        return ExtraTraining(
            "tuning", Method(), self.epochs, head_mask if self.part == "head" else None
        )
