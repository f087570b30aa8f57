"""FedProx: a proximal term keeps local training near the global model.

Li et al., "Federated Optimization in Heterogeneous Networks", 2020. Client k minimises
``F_k(w) + mu/2 ||w - w_global||^2``; with mu = 0 it is FedAvg.
"""

from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.composition.parts import Aspect, ClientSide
from unskew.composition.search_space import SearchSpace
from unskew.composition.values import About, Client, Start, Step, Tensors
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedProx(ClientSide):
    """FedAvg with a proximal term."""

    mu: Annotated[float, Field(ge=0)] = 0.01
    """Strength of the proximal term. 0 is FedAvg."""

    about: ClassVar[About] = About(title="Proximal term", paper="Li et al. 2020", kind="objective")
    grid: ClassVar[SearchSpace] = {"mu": (0.001, 0.01, 0.1, 1.0)}

    works_on_any_device = True
    adds = frozenset({Aspect.LOCAL_LOSS})

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Keep the global parameters as the centre of the proximal term.

        Coordinates that stay on the client are centred at their own last values.
        """
        return replace(start, refs={"center": start.received[: client.network.layout.trainable]})

    def loss_term(self, step: Step, refs: Tensors) -> Tensor:
        """Return ``mu/2 ||w - w_global||^2``."""
        return self.mu / 2 * (step.weights - refs["center"]).square().sum()

    def proximal_strength(self) -> float:
        """Return the strength of the proximal term."""
        return self.mu
