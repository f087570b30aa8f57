"""FedProx: a proximal term keeps local training near the global model.

Li et al., "Federated Optimization in Heterogeneous Networks", 2020. Client k minimises
``F_k(w) + mu/2 ||w - w_global||^2``; with mu = 0 it is FedAvg.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.methods.common.base import About, Client, Method, Start, Tensors
from unskew.models.functional import Batch, Buffers, FunctionalModel
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedProx(Method):
    """FedAvg with a proximal term."""

    mu: Annotated[float, Field(ge=0)] = 0.01
    """Strength of the proximal term. 0 is FedAvg."""

    about: ClassVar[About] = About(title="Proximal term", paper="Li et al. 2020", kind="objective")
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"mu": (0.001, 0.01, 0.1, 1.0)}

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Add the global parameters as the centre of the proximal term.

        Coordinates that stay on the client are centred at their own last values.
        """
        start = super().prepare(client, payload, state)
        center = self.received(client, payload, state)[: client.network.layout.trainable]
        return replace(start, refs={**start.refs, "center": center})

    def proximal_strength(self) -> float:
        """Add the strength of the proximal term."""
        return super().proximal_strength() + self.mu

    def objective(
        self,
        network: FunctionalModel,
        weights: Tensor,
        buffers: Buffers,
        batch: Batch,
        refs: Tensors,
    ) -> Tensor:
        """Add ``mu/2 ||w - w_global||^2`` to the mean loss."""
        loss = super().objective(network, weights, buffers, batch, refs)
        return loss + self.mu / 2 * (weights - refs["center"]).square().sum()
