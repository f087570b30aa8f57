"""FedLESAM: SAM along the direction of past global updates, with one gradient per step.

Fan et al., "Locally Estimated Global Perturbations are Better than Local Perturbations for
Federated Sharpness-aware Minimization", 2024. The global loss rises towards where the global model
came from: a client perturbs its weights by the vector of length rho along ``w_old - w``, where w is
the global model and w_old the one that the client received when it last took part.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.composition.parts import Aspect, ClientSide
from unskew.composition.values import (
    About,
    Client,
    Finished,
    Perturbation,
    Start,
    Step,
    Tensors,
    Trained,
)
from unskew.methods.common.shared_coordinates import SharedCoordinates
from unskew.methods.common.sharpness import ascent
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedLESAM(ClientSide):
    """FedAvg with gradients at weights that are perturbed as past global updates suggest."""

    rho: Annotated[float, Field(ge=0)] = 0.05
    """Length of the perturbation. 0 is FedAvg."""

    about: ClassVar[About] = About(
        title="Flat minima of the global loss", paper="Fan et al. 2024", kind="objective"
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"rho": (0.001, 0.01, 0.05, 0.1, 0.5)}

    replaces = frozenset({Aspect.PERTURBATION})

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Compute the perturbation of the round; it is zero when a client first takes part."""
        shared = SharedCoordinates.of(client)
        received = shared.take(start.received)
        shift = ascent(state.get("received", received) - received, self.rho)
        return replace(start, refs={"shift": shared.spread(shift)})

    def perturbation(self, step: Step, refs: Tensors) -> Perturbation:
        """Return the perturbation of the round."""
        return Perturbation(refs["shift"])

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Keep the received model."""
        return Finished(state={"received": SharedCoordinates.of(client).take(start.received)})
