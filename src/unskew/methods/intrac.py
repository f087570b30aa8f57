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
from unskew.composition.parts import Aspect, ServerSide
from unskew.composition.values import About, Server
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class INTRAC(ServerSide):
    """Weights from the inverse of a client's accuracy on its own training samples."""

    chance_level: Annotated[float, Field(gt=0, le=1)] | Literal["paper"] | None = None
    """Accuracies below it count as equal to it; None: one over the number of classes, "paper": one
    over the number of all clients."""

    about: ClassVar[About] = About(
        title="Inverse training accuracy", paper="Yeganeh et al. 2020", kind="server"
    )
    adds = frozenset({Aspect.WEIGHTS})
    needs = frozenset({"train_accuracy"})

    def client_weights(self, server: Server) -> ClientWeighting:
        """Weight clients by inverse training accuracy."""
        del server

        def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
            return inverse_accuracy(self.chance_level, uploads.classes).derive(uploads)

        return ClientWeighting("inverse_accuracy", derive)
