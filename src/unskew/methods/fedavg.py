"""FedAvg: average the clients' models by their number of samples.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017.
"""

from typing import ClassVar

from pydantic.dataclasses import dataclass

from unskew.aggregation.weighting import ClientWeighting, by_samples
from unskew.methods.common.base import About, Method, Server
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedAvg(Method):
    """Every hook at its default; in a product, the factor of the sample counts."""

    about: ClassVar[About] = About(
        title="Average by samples", paper="McMahan et al. 2017", kind="server"
    )

    def weightings(self, server: Server) -> tuple[ClientWeighting, ...]:
        """Add the sample counts."""
        return (*super().weightings(server), by_samples())
