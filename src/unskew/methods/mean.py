"""Mean: the unweighted mean of the clients' models.

Public code often calls it FedAvg; here the weighted and the unweighted mean have different names.
"""

from typing import ClassVar

from pydantic.dataclasses import dataclass

from unskew.aggregation.weighting import ClientWeighting, uniform
from unskew.composition.parts import Aspect, ServerSide
from unskew.composition.values import About, Server
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Mean(ServerSide):
    """FedAvg with equal weights."""

    about: ClassVar[About] = About(
        title="Unweighted average", paper="baseline of Yeganeh et al. 2020", kind="server"
    )

    works_on_any_device = True
    adds = frozenset({Aspect.WEIGHTS})

    def client_weights(self, server: Server) -> ClientWeighting:
        """Weight all clients equally."""
        del server
        return uniform()
