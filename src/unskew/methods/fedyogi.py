"""FedYogi: Yogi on the server.

Reddi et al., "Adaptive Federated Optimization", 2021.
"""

from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.composition.values import About
from unskew.methods.common.server_optimizer import AdaptiveServerOptimizer, Positive
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedYogi(AdaptiveServerOptimizer):
    """Yogi on the server: the change of the second moment is bounded."""

    server_lr: Positive = 0.01
    """Size of the server's step where changes are steady."""

    about: ClassVar[About] = About(
        title="Yogi on the server", paper="Reddi et al. 2021", kind="server"
    )

    def second_moment(self, old: Tensor, square: Tensor) -> Tensor:
        """Return the old moment, moved towards the new square."""
        return old - (1 - self.beta2) * square * torch.sign(old - square)
