"""FedSMOO: FedDyn with perturbed gradients, whose perturbations agree on all clients.

Sun et al., "Dynamic Regularized Sharpness Aware Minimization in Federated Learning: Approaching
Global Consistency and Smooth Landscape", 2023. A client perturbs its weights by the vector s_k of
length rho along ``g - m_k - s``. Its dual variable m_k adds up ``s_k - s`` over the steps, and s is
the vector of length rho along the mean of the duals. With rho = 0 it is FedDyn.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.aggregation.blocks import as_matrix
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics
from unskew.composition.parts import Aspect
from unskew.composition.upload_values import Value
from unskew.composition.values import (
    About,
    Client,
    Finished,
    Perturbation,
    Server,
    Start,
    Step,
    Tensors,
    Trained,
)
from unskew.methods.common.shared_coordinates import SharedCoordinates
from unskew.methods.common.sharpness import ascent
from unskew.methods.feddyn import FedDyn
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedSMOO(FedDyn):
    """FedDyn's regulariser for the weights, and a second one for their perturbation."""

    alpha: Annotated[float, Field(gt=0)] = 0.1
    """Strength of the quadratic term, and step size of the linear term's coefficients."""
    evaluate: Literal["mean", "sent"] = "sent"
    """The model to evaluate: the "mean" of the round's clients, or the "sent" one, which is that
    mean minus h/alpha, as the authors do."""
    rho: Annotated[float, Field(ge=0)] = 0.1
    """Length of the perturbation. 0 is FedDyn."""

    replaces = FedDyn.replaces | {Aspect.PERTURBATION}
    reads_gradient = True
    changing_refs: ClassVar[tuple[str, ...]] = ("dual",)
    about: ClassVar[About] = About(
        title="Dynamic regularisation of weights and perturbations",
        paper="Sun et al. 2023",
        kind="objective",
        down="model, variate",
        up="model, variate",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "alpha": (0.001, 0.01, 0.1, 1.0),
        "rho": (0.001, 0.01, 0.05, 0.1, 0.5),
    }

    @property
    def receives(self) -> Mapping[str, Value]:
        """The client's dual variable."""
        return {"dual": Value(("shared",))}

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the common perturbation, once there is one."""
        state = server.state
        return {"common": state["common"]} if "common" in state else {}

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Add the client's dual variable and the common perturbation to FedDyn's references."""
        shared = SharedCoordinates.of(client)
        prepared = super().prepare(client, start, payload, state)
        own = {
            "dual": shared.spread(state.get("dual", shared.zeros())),
            "common": shared.spread(payload.get("common", shared.zeros())),
        }
        return replace(prepared, refs={**prepared.refs, **own})

    def perturbation(self, step: Step, refs: Tensors) -> Perturbation:
        """Return the vector of length rho along ``g - m_k - s``."""
        assert step.gradient is not None
        return Perturbation(ascent(step.gradient - refs["dual"] - refs["common"], self.rho))

    def next_refs(self, step: Step, refs: Tensors) -> Tensors:
        """Add this step's ``s_k - s`` to the dual variable."""
        assert step.shift is not None
        return {"dual": refs["dual"] + (step.shift - refs["common"])}

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Keep the dual variable besides FedDyn's state, and send it."""
        finished = super().finish(client, start, trained, state)
        dual = SharedCoordinates.of(client).take(trained.refs["dual"])
        return Finished({"dual": dual}, {**finished.state, "dual": dual})

    def conclude(
        self, before: Server, after: Server, uploads: Uploads, diagnostics: Diagnostics
    ) -> tuple[Server, Diagnostics]:
        """Point the common perturbation along the mean of the dual variables."""
        common = ascent(as_matrix(uploads.extras["dual"]).mean(0), self.rho)
        return replace(after, state={**after.state, "common": common}), {}
