"""FedAdagrad: Adagrad on the server.

Reddi et al., "Adaptive Federated Optimization", 2021.
"""

from typing import ClassVar

from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.composition.values import About
from unskew.methods.common.server_optimizer import AdaptiveServerOptimizer, Decay
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedAdagrad(AdaptiveServerOptimizer):
    """Adagrad on the server: the second moment only grows."""

    beta1: Decay = 0.0
    """Decay of the first moment, the direction of a step. 0: this round's change alone."""

    about: ClassVar[About] = About(
        title="Adagrad on the server", paper="Reddi et al. 2021", kind="server"
    )

    def second_moment(self, old: Tensor, square: Tensor) -> Tensor:
        """Return the sum."""
        return old + square
