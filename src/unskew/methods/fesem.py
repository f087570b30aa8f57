"""FeSEM: several centres, and each client belongs to the one its model is nearest to.

Xie et al., "Multi-Center Federated Learning", 2020. Each round is one pass of expectation and
maximisation: uploads go to their nearest centre, centres to the mean of their uploads.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.centers import further_seeds, squared_distances
from unskew.aggregation.uploads import Uploads
from unskew.methods.common.base import About, Server
from unskew.methods.common.multi_model import Count, MultiModelMethod, Placed
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FeSEM(MultiModelMethod):
    """Centres, each the mean of the clients whose models are nearest to it."""

    models: Count = 3
    """How many centres there are. 1 is FedAvg."""

    own_slots: ClassVar[frozenset[str]] = MultiModelMethod.own_slots | {"taken"}
    about: ClassVar[About] = About(
        title="Nearest of several centres",
        paper="Xie et al. 2020",
        kind="several models",
        level="personal",
        needs_individual_updates=True,
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"models": (3, 5)}

    def first_models(self, vector: Tensor, layout: Layout) -> Tensor:
        """Start everybody from the same model: uploads will be the first centres."""
        del layout
        return vector.repeat(self.models, 1)

    def begin(self, vector: Tensor, layout: Layout, earlier: Mapping[str, Server]) -> Server:
        """Note that no centre is taken yet."""
        server = super().begin(vector, layout, earlier)
        return replace(server, slots={**server.slots, "taken": torch.tensor(0)})

    def place(self, server: Server, uploads: Uploads) -> Placed:
        """Put each upload to its nearest centre; centres not yet taken begin at far uploads."""
        rows, taken = uploads.parameters, int(server.slots["taken"])
        centers = server.slots["models"][:taken, : uploads.layout.trainable]
        centers = further_seeds(rows, centers, self.models)
        distances = squared_distances(rows, centers)
        slots = {**server.slots, "taken": torch.tensor(len(centers))}
        return Placed(replace(server, slots=slots), distances.argmin(1))
