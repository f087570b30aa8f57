"""IDA and INTRAC: clients count by inverse distance to the mean model, and by inverse accuracy.

Yeganeh, Farshad, Navab and Albarqouni, "Inverse Distance Aggregation for Federated Learning with
Non-IID Data", 2020. They multiply with each other and with sample counts: ``ida+intrac``,
``ida+fedavg``. See docs/rules.md for what the paper leaves open.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.methods.base import About, Method, Server
from unskew.rules.inverse import Center, inverse_accuracy, inverse_distance
from unskew.rules.uploads import Uploads
from unskew.rules.weighers import Reasons, Weigher
from unskew.spelling import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Ida(Method):
    """Weights from the inverse distance of a client's model to the mean model."""

    norm: Annotated[int, Field(ge=1, le=2)] = 1
    center: Center = "mean"
    eps: Annotated[float, Field(ge=0)] = 1e-3
    cap: Annotated[float, Field(ge=1)] | None = None
    absolute: bool = False

    about: ClassVar[About] = About(
        title="Inverse distance to the mean model",
        paper="Yeganeh et al. 2020",
        kind="server",
        needs_individual_updates=True,
    )

    def weighers(self, server: Server) -> tuple[Weigher, ...]:
        """Add inverse distances."""
        norm: Literal[1, 2] = 1 if self.norm == 1 else 2
        own = inverse_distance(norm, self.center, self.eps, self.cap, self.absolute)
        return (*super().weighers(server), own)


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Intrac(Method):
    """Weights from the inverse of a client's accuracy on its own training samples.

    ``chance`` is the accuracy below which clients are alike: one in the number of classes, a
    number, or "paper" for one in the number of clients.
    """

    chance: Annotated[float, Field(gt=0, le=1)] | Literal["paper"] | None = None

    about: ClassVar[About] = About(
        title="Inverse training accuracy", paper="Yeganeh et al. 2020", kind="server"
    )
    wants_train_accuracy: ClassVar[bool] = True

    def weighers(self, server: Server) -> tuple[Weigher, ...]:
        """Add inverse training accuracies."""

        def derive(uploads: Uploads) -> tuple[Tensor, Reasons]:
            return inverse_accuracy(self.chance, uploads.classes).derive(uploads)

        return (*super().weighers(server), Weigher("inverse_accuracy", derive))
