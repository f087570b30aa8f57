"""FedAvg: the mean of the clients' models, weighted by their numbers of samples.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017.
"""

from typing import ClassVar

from pydantic.dataclasses import dataclass

from unskew.aggregation.weighting import ClientWeighting, by_samples
from unskew.composition.parts import Aspect, ServerSide
from unskew.composition.values import About, Server
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedAvg(ServerSide):
    """Sample counts as weights, which multiply with those of other parts."""

    about: ClassVar[About] = About(
        title="Average by samples", paper="McMahan et al. 2017", kind="server"
    )

    works_on_any_device = True
    adds = frozenset({Aspect.WEIGHTS})

    def client_weights(self, server: Server) -> ClientWeighting:
        """Weight clients by sample counts."""
        del server
        return by_samples()
