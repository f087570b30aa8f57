"""FedAvgM: momentum on the server.

Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", 2019.
"""

from typing import ClassVar

from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.composition.parts import Aspect, ServerSide
from unskew.composition.search_space import LogRange, SearchSpace
from unskew.composition.values import About, Server
from unskew.methods.common.server_optimizer import (
    Decay,
    Positive,
    after_step,
    change_of,
    state_or_zeros,
)
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedAvgM(ServerSide):
    """Momentum on the server; momentum 0 and learning rate 1 leave the aggregate unchanged."""

    server_lr: Positive = 1.0
    """Learning rate of the server's step."""
    server_momentum: Decay = 0.9
    """Momentum of the server's step. 0: none."""

    about: ClassVar[About] = About(title="Server momentum", paper="Hsu et al. 2019", kind="server")
    grid: ClassVar[SearchSpace] = {
        "server_lr": LogRange(0.1, 3.0),
        "server_momentum": (0.0, 0.7, 0.9, 0.97),
    }

    replaces = frozenset({Aspect.SERVER_STEP})

    def step(self, server: Server, vector: Tensor, uploads: Uploads) -> Server:
        """Step along the velocity."""
        change = change_of(server, vector, uploads)
        velocity = self.server_momentum * state_or_zeros(server.state, "velocity", change) + change
        moved = after_step(server, vector, uploads, self.server_lr * velocity)
        return Server(moved, {"velocity": velocity})
