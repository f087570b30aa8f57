"""FedACG: the server sends a look-ahead model, moved along its momentum.

Kim, Kim and Han, "Communication-Efficient Federated Learning with Accelerated Client Gradient",
2024. Clients start at ``w + momentum m``, near which a proximal term keeps them; their mean is the
new model, and m sums up the rounds' changes with decay.
"""

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.composition.parts import Aspect, ServerSide
from unskew.composition.search_space import LogRange, SearchSpace
from unskew.composition.values import About, Server
from unskew.methods.common.server_optimizer import Decay, change_of, state_or_zeros
from unskew.methods.fedprox import FedProx
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedACG(FedProx, ServerSide):
    """The aggregate, sent with a step along the momentum, and a proximal term around it."""

    mu: Annotated[float, Field(ge=0)] = 0.001
    """Strength of the proximal term around the model that is sent. 0: none."""
    server_momentum: Decay = 0.85
    """Decay of the momentum, and how far along it the model that is sent is ahead. 0: none."""

    about: ClassVar[About] = About(
        title="Look-ahead broadcast", paper="Kim et al. 2024", kind="objective"
    )
    grid: ClassVar[SearchSpace] = {
        "mu": LogRange(1e-4, 0.1),
        "server_momentum": (0.75, 0.8, 0.85, 0.9),
    }

    replaces = frozenset({Aspect.SERVER_STEP, Aspect.GLOBAL_MODEL})

    def step(self, server: Server, vector: Tensor, uploads: Uploads) -> Server:
        """Update the momentum by the clients' mean update; send the mean moved along it."""
        change = change_of(server, vector, uploads)
        momentum = self.server_momentum * state_or_zeros(server.state, "momentum", change) + change
        trainable, sent = uploads.layout.trainable, vector
        if self.server_momentum:
            sent = vector.clone()
            sent[:trainable] += self.server_momentum * momentum
        return Server(sent, {"momentum": momentum, "mean": vector[:trainable]})

    def model(self, server: Server) -> Tensor:
        """Return the mean of the round's clients, without the look-ahead."""
        if "mean" not in server.state:
            return server.vector
        mean = server.state["mean"]
        return torch.cat([mean, server.vector[len(mean) :]])
