"""IDA: clients are weighted by the inverse distance of their model to the mean model.

Yeganeh, Farshad, Navab and Albarqouni, "Inverse Distance Aggregation for Federated Learning with
Non-IID Data", 2020. The weights can be multiplied with INTRAC's and with sample counts:
``ida+intrac``, ``ida+fedavg``. docs/aggregation.md lists what the paper leaves open.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.aggregation.inverse import Center, inverse_distance
from unskew.aggregation.weighting import ClientWeighting
from unskew.composition.parts import Aspect, ServerSide
from unskew.composition.search_space import SearchSpace
from unskew.composition.values import About, Server
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class IDA(ServerSide):
    """Weights from the inverse distance of a client's model to the mean model.

    A client whose parameters have the distance d from the centre of all clients gets the weight
    ``1 / (d + eps * mean d)``, divided by the sum of all weights.
    """

    norm: Annotated[int, Field(ge=1, le=2)] = 1
    """Norm of the distance: 1 sums absolute differences, 2 is the Euclidean length."""
    center: Center = "mean"
    """Point that distances are measured from: the plain "mean", the mean weighted by samples
    ("fedavg"), or the coordinate-wise "median"."""
    eps: Annotated[float, Field(ge=0)] = 1e-3
    """Fraction of the mean distance that is added to every distance; larger gives more even
    weights."""
    cap: Annotated[float, Field(ge=1)] | None = None
    """Largest weight, in multiples of the uniform weight 1/n. 1 is the Mean; None: no bound."""
    absolute: bool = False
    """Whether eps is itself a distance, as in the paper, rather than a fraction of the mean one."""

    about: ClassVar[About] = About(
        title="Inverse distance to the mean model",
        paper="Yeganeh et al. 2020",
        kind="server",
        needs_individual_updates=True,
    )
    grid: ClassVar[SearchSpace] = {"norm": (1, 2)}

    adds = frozenset({Aspect.WEIGHTS})

    def client_weights(self, server: Server) -> ClientWeighting:
        """Weight clients by inverse distance."""
        del server
        norm: Literal[1, 2] = 1 if self.norm == 1 else 2
        return inverse_distance(norm, self.center, self.eps, self.cap, self.absolute)
