"""FedAdam: Adam on the server.

Reddi et al., "Adaptive Federated Optimization", 2021.
"""

from typing import ClassVar

from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.composition.values import About
from unskew.methods.common.server_optimizer import AdaptiveServerOptimizer
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedAdam(AdaptiveServerOptimizer):
    """Adam on the server, without bias correction, as published."""

    about: ClassVar[About] = About(
        title="Adam on the server", paper="Reddi et al. 2021", kind="server"
    )

    def second_moment(self, old: Tensor, square: Tensor) -> Tensor:
        """Return the moving average."""
        return self.beta2 * old + (1 - self.beta2) * square
