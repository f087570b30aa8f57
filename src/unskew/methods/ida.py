"""IDA and INTRAC: clients count by inverse distance to the mean model, and by inverse accuracy.

Yeganeh, Farshad, Navab and Albarqouni, "Inverse Distance Aggregation for Federated Learning with
Non-IID Data", 2020. They multiply with each other and with sample counts: ``ida+intrac``,
``ida+fedavg``. See docs/aggregation.md for what the paper leaves open.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.inverse import Center, inverse_accuracy, inverse_distance
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Reasons
from unskew.methods.common.base import About, Method, Server
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class IDA(Method):
    """Weights from the inverse distance of a client's model to the mean model."""

    norm: Annotated[int, Field(ge=1, le=2)] = 1
    """Norm of the distance: 1 adds up absolute differences, 2 is the Euclidean length."""
    center: Center = "mean"
    """What distances are measured from: the plain "mean", the mean by samples ("fedavg"), or the
    "median" of each coordinate."""
    eps: Annotated[float, Field(ge=0)] = 1e-3
    """Share of the mean distance added to every distance; the larger, the more even weights."""
    cap: Annotated[float, Field(ge=1)] | None = None
    """Most times the even share 1/n that a weight may be. 1 is the Mean; None: no bound."""
    absolute: bool = False
    """Whether eps is itself a distance, as in the paper, instead of a share of the mean one."""

    about: ClassVar[About] = About(
        title="Inverse distance to the mean model",
        paper="Yeganeh et al. 2020",
        kind="server",
        needs_individual_updates=True,
    )

    def weightings(self, server: Server) -> tuple[ClientWeighting, ...]:
        """Add inverse distances."""
        norm: Literal[1, 2] = 1 if self.norm == 1 else 2
        own = inverse_distance(norm, self.center, self.eps, self.cap, self.absolute)
        return (*super().weightings(server), own)


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class INTRAC(Method):
    """Weights from the inverse of a client's accuracy on its own training samples."""

    chance: Annotated[float, Field(gt=0, le=1)] | Literal["paper"] | None = None
    """Accuracy below which clients are alike; None: one in the number of classes, "paper": one in
    the number of all clients."""

    about: ClassVar[About] = About(
        title="Inverse training accuracy", paper="Yeganeh et al. 2020", kind="server"
    )
    wants_train_accuracy: ClassVar[bool] = True

    def weightings(self, server: Server) -> tuple[ClientWeighting, ...]:
        """Add inverse training accuracies."""

        def derive(uploads: Uploads) -> tuple[Tensor, Reasons]:
            return inverse_accuracy(self.chance, uploads.classes).derive(uploads)

        return (*super().weightings(server), ClientWeighting("inverse_accuracy", derive))
