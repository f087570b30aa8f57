"""FedBABU: the body is trained with a fixed head; clients fine-tune the head for evaluation.

Oh, Kim and Yun, "FedBABU: Toward Enhanced Representation for Federated Image Classification", 2022.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.composition.method import Method
from unskew.composition.parts import Aspect, Personalization, Setup
from unskew.composition.values import About, ExtraTraining
from unskew.errors import UnskewError
from unskew.methods.common.head import head_mask
from unskew.models.functional import FunctionalModel
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedBABU(Personalization, Setup):
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

    replaces = frozenset({Aspect.HEAD, Aspect.FINE_TUNING})

    def check(self, method: Method, network: FunctionalModel, samples: Tensor) -> None:
        """Check that the network has a body and a head, and that clients have samples."""
        for part in method.parts:
            if not part.sends_model:
                raise UnskewError(
                    f"method {method.spec!r}: fedbabu fine-tunes on each client's samples, which "
                    f"{part.name} pools on the server; remove one of them"
                )
        if bool(head_mask(network.layout)[: network.layout.trainable].all()):
            raise UnskewError(
                "model: 'fedbabu' trains only the body, and this network is only a head; "
                "use one with a hidden layer, such as mlp"
            )

    def freezes(self, layout: Layout) -> Tensor:
        """Freeze the head."""
        return head_mask(layout)

    def stays(self, layout: Layout) -> Tensor:
        """Do not send the head: all clients have it from the start."""
        return head_mask(layout)

    def constant(self, layout: Layout) -> Tensor:
        """Do not keep the head: it is the same on all clients."""
        return head_mask(layout)

    def fine_tuning(self) -> ExtraTraining:
        """Train the head, or the whole model, on the client's own samples."""
        trains = head_mask if self.part == "head" else None
        return ExtraTraining("tuning", Method(), self.epochs, trains)
