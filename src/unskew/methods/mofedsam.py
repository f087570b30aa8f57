"""MoFedSAM: FedSAM whose local steps also follow the direction of the last global update.

Qu et al., "Generalized Federated Learning via Sharpness Aware Minimization", 2022. A client steps
along ``alpha g(w + rho g / ||g||) + (1 - alpha) D``, with FedCM's momentum D. With alpha = 1 it is
FedSAM, with rho = 0 FedCM.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.composition.values import About, Perturbation, Step, Tensors
from unskew.methods.fedcm import FedCM
from unskew.methods.fedsam import FedSAM
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class MoFedSAM(FedSAM, FedCM):
    """FedSAM with momentum from round to round in the local steps."""

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of the client's own gradient; the momentum has the rest. 1 is FedSAM."""

    about: ClassVar[About] = About(
        title="Flat local minima with momentum",
        paper="Qu et al. 2022",
        kind="objective",
        down="model, variate",
        up="model, 1 number",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "rho": (0.001, 0.01, 0.05, 0.1, 0.5),
        "alpha": (0.05, 0.1, 0.5, 0.8),
    }

    def perturbation(self, step: Step, refs: Tensors) -> Perturbation:
        """Mix the gradient at the perturbed weights with the momentum."""
        shift = FedSAM.perturbation(self, step, refs).shift
        return replace(FedCM.perturbation(self, step, refs), shift=shift)
