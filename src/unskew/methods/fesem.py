"""FeSEM: several centres, and each client belongs to the one nearest to its model.

Xie et al., "Multi-Center Federated Learning", 2020. Each round is one step of expectation
maximisation: uploads are assigned to their nearest centre, and each centre becomes the mean of its
uploads.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.centers import distances_to_centers, further_seeds
from unskew.aggregation.uploads import Uploads
from unskew.composition.multi_model import Assignment, Count, ModelSelector
from unskew.composition.values import About, Beginning, Server, Tensors
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FeSEM(ModelSelector):
    """Centres, each the mean of the clients whose models are nearest to it."""

    models: Count = 3
    """Number of centres. 1 is FedAvg."""

    about: ClassVar[About] = About(
        title="Nearest of several centres",
        paper="Xie et al. 2020",
        kind="several models",
        level="personal",
        needs_individual_updates=True,
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"models": (3, 5)}

    def initial_models(self, vector: Tensor, layout: Layout) -> Tensor:
        """Start all centres from the same model; the first centres are chosen among uploads."""
        return vector.repeat(self.models, 1)

    def begin(self, beginning: Beginning) -> Tensors:
        """Start with no centre in use."""
        return {"taken": torch.tensor(0)}

    def assign(self, server: Server, uploads: Uploads) -> Assignment:
        """Assign each upload to its nearest centre; unused centres start at distant uploads."""
        rows, taken = uploads.parameters, int(server.state["taken"])
        centers = server.state["models"][:taken, : uploads.layout.trainable]
        centers = further_seeds(rows, centers, self.models)
        distances = distances_to_centers(rows, centers)
        state = {**server.state, "taken": torch.tensor(len(centers))}
        return Assignment(replace(server, state=state), distances.argmin(1))
