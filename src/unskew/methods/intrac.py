"""INTRAC: clients are weighted by the inverse of their training accuracy.

Yeganeh, Farshad, Navab and Albarqouni, "Inverse Distance Aggregation for Federated Learning with
Non-IID Data", 2020. docs/aggregation.md lists what the paper leaves open.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.inverse import inverse_accuracy
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics
from unskew.methods.common.base import About, Method, Server
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class INTRAC(Method):
    """Weights from the inverse of a client's accuracy on its own training samples."""

    chance_level: Annotated[float, Field(gt=0, le=1)] | Literal["paper"] | None = None
    """Accuracies below it count as equal to it; None: one over the number of classes, "paper": one
    over the number of all clients."""

    about: ClassVar[About] = About(
        title="Inverse training accuracy", paper="Yeganeh et al. 2020", kind="server"
    )
    needs_train_accuracy: ClassVar[bool] = True

    def weightings(self, server: Server) -> tuple[ClientWeighting, ...]:
        """Add weights by inverse training accuracy."""

        def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
            return inverse_accuracy(self.chance_level, uploads.classes).derive(uploads)

        return (*super().weightings(server), ClientWeighting("inverse_accuracy", derive))
