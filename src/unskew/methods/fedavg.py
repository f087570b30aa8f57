"""FedAvg: the mean of the clients' models, weighted by their numbers of samples.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017.
"""

from typing import ClassVar

from pydantic.dataclasses import dataclass

from unskew.aggregation.weighting import ClientWeighting, by_samples
from unskew.methods.common.base import About, Method, Server
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedAvg(Method):
    """Every hook at its default; in a composition, sample counts as a factor of the weights."""

    about: ClassVar[About] = About(
        title="Average by samples", paper="McMahan et al. 2017", kind="server"
    )

    def weightings(self, server: Server) -> tuple[ClientWeighting, ...]:
        """Add weights by sample counts."""
        return (*super().weightings(server), by_samples())
