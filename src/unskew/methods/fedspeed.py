"""FedSpeed: FedDyn with gradients at perturbed weights.

Sun et al., "FedSpeed: Larger Local Interval, Less Communication Round, and Higher Generalization
Accuracy", 2023. A proximal term keeps clients together, a correction removes its bias, and the
gradient is ``(1 - share) g(w) + share g(w + rho g / ||g||)``. With rho = 0 it is FedDyn.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.composition.parts import Aspect
from unskew.composition.values import About, Perturbation, Step, Tensors
from unskew.methods.common.sharpness import ascent
from unskew.methods.feddyn import FedDyn
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedSpeed(FedDyn):
    """FedDyn's regulariser, and FedSAM's perturbation mixed with the plain gradient."""

    alpha: Annotated[float, Field(gt=0)] = 0.1
    """Strength of the proximal term, 1/lambda in the paper, and step size of its correction."""
    evaluate: Literal["mean", "sent"] = "sent"
    """The model to evaluate: the "mean" of the round's clients, or the "sent" one, which is that
    mean with the clients' corrections, as the authors do."""
    rho: Annotated[float, Field(ge=0)] = 0.1
    """Length of the perturbation. 0: none."""
    share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the gradient at the perturbed weights; the plain gradient has the rest."""

    replaces = FedDyn.replaces | {Aspect.PERTURBATION}
    reads_gradient = True
    about: ClassVar[About] = About(
        title="Dynamic regularisation and flat minima", paper="Sun et al. 2023", kind="objective"
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "alpha": (0.001, 0.01, 0.1, 1.0),
        "rho": (0.001, 0.01, 0.05, 0.1, 0.5),
    }

    def perturbation(self, step: Step, refs: Tensors) -> Perturbation:
        """Return the step of length rho along the gradient."""
        assert step.gradient is not None
        rest = None if self.share == 1 else step.gradient
        return Perturbation(ascent(step.gradient, self.rho), self.share, rest)
