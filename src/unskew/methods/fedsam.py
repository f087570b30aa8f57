"""FedSAM: local steps look for flat minima, which suit other clients too.

Qu et al., "Generalized Federated Learning via Sharpness Aware Minimization", 2022. A client takes
its gradient at ``w + rho g / ||g||``, where the loss is largest in a ball around its weights w, to
first order; g is the gradient at w. With rho = 0 it is FedAvg.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.composition.parts import Aspect, ClientSide
from unskew.composition.values import About, Perturbation, Step, Tensors
from unskew.methods.common.sharpness import ascent
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedSAM(ClientSide):
    """FedAvg with gradients at perturbed weights: two gradients per local step."""

    rho: Annotated[float, Field(ge=0)] = 0.05
    """Length of the perturbation. 0 is FedAvg."""
    adaptive: bool = False
    """Whether coordinates are perturbed in proportion to their size, as in FedASAM."""

    about: ClassVar[About] = About(
        title="Flat local minima", paper="Qu et al. 2022", kind="objective"
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"rho": (0.001, 0.01, 0.05, 0.1, 0.5)}

    replaces = frozenset({Aspect.PERTURBATION})
    reads_gradient = True

    def perturbation(self, step: Step, refs: Tensors) -> Perturbation:
        """Return the step of length rho along the gradient."""
        assert step.gradient is not None
        if not self.adaptive:
            return Perturbation(ascent(step.gradient, self.rho))
        sizes = step.weights.abs()
        return Perturbation(sizes * ascent(sizes * step.gradient, self.rho))
