"""FedLWS: each layer of the new global model is shrunk, more where clients disagree.

Shi, Li, Zhao, Guo and Chang, "FedLWS: Federated Learning with Adaptive Layer-wise Weight
Shrinking", 2025. The aggregate of a layer is multiplied by ``||w|| / (||w|| + tau ||D||)``, where w
is the layer of the previous model, D its change in this round, and tau grows with the distance of
the clients' updates from their mean.
"""

from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.distances import distances_to_mean
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics, uniform
from unskew.composition.parts import Aspect, ServerSide
from unskew.composition.search_space import LogRange, SearchSpace
from unskew.composition.values import About, Server
from unskew.errors import UnskewError
from unskew.methods.common.head import layers_of
from unskew.models.layout import Entry
from unskew.utils.specs import OPTIONS

Strength = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedLWS(ServerSide):
    """Any aggregate, with the layers of the new model shrunk."""

    beta: Strength = 0.03
    """How much of the clients' disagreement becomes tau; 0 is FedAvg if min_tau is also 0."""
    min_tau: Strength = 0.01
    """The least tau of a layer, so that clients that agree still shrink it."""
    max_tau: Strength = 0.2
    """The largest tau of a layer; at least min_tau."""

    about: ClassVar[About] = About(
        title="Shrinking of layers",
        paper="Shi et al. 2025 (FedLWS)",
        kind="server",
        needs_individual_updates=True,
    )
    grid: ClassVar[SearchSpace] = {"beta": LogRange(0.01, 0.1)}

    replaces = frozenset({Aspect.SERVER_STEP})

    def __post_init__(self) -> None:
        if self.max_tau < self.min_tau:
            raise UnskewError("method 'fedlws': max_tau must be at least min_tau; raise it")

    def step(self, server: Server, vector: Tensor, uploads: Uploads) -> Server:
        """Multiply each layer by its factor; buffers take the round's values."""
        shrunk, factors = vector.clone(), []
        for layer in layers_of(uploads.layout):
            factors.append(self._factor(layer, vector, uploads))
            for entry in layer:
                shrunk[entry.slice] *= factors[-1]
        return Server(shrunk, {"factors": torch.tensor(factors)})

    def _factor(self, layer: list[Entry], vector: Tensor, uploads: Uploads) -> float:
        length = _length([uploads.previous[entry.slice] for entry in layer])
        if not length:  # a layer of zeros would remain one
            return 1.0
        spread = torch.zeros(len(uploads), dtype=torch.float64)
        weights = uniform()(uploads).to(uploads.stack)
        for entry in layer:
            rows = uploads.stack[:, entry.slice]
            spread += distances_to_mean(rows, weights, 2).cpu().double().square()
        tau = min(max(self.beta * float(spread.sqrt().mean()), self.min_tau), self.max_tau)
        change = [vector[entry.slice] - uploads.previous[entry.slice] for entry in layer]
        return length / (length + tau * _length(change))

    def conclude(
        self, before: Server, after: Server, uploads: Uploads, diagnostics: Diagnostics
    ) -> tuple[Server, Diagnostics]:
        """Report the factors, one per layer."""
        return replace(after, state={}), {"layer_factors": after.state["factors"].unsqueeze(0)}


def _length(tensors: list[Tensor]) -> float:
    """Return the Euclidean length of several tensors as one vector."""
    return float(torch.stack([each.double().square().sum() for each in tensors]).sum().sqrt())
