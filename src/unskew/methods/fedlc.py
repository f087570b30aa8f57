"""FedLC: logits are calibrated by how many samples a client has of each class.

Zhang et al., "Federated Learning with Label Distribution Skew via Logits Calibration", 2022. The
local cross-entropy is that of the logits ``z_c - tau n_c^(-1/4)``, so that rare classes need larger
logits, and missing classes take no part.
"""

import math
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.composition.parts import Aspect, ClientSide
from unskew.composition.search_space import SearchSpace
from unskew.composition.values import About, Client, Start, Step, Tensors
from unskew.methods.common.class_losses import class_counts, cross_entropy, for_outputs
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedLC(ClientSide):
    """FedAvg with calibrated logits in the local loss."""

    tau: Annotated[float, Field(ge=0)] = 1.0
    """Strength of the calibration; larger demands larger margins for rare classes. 0 is FedAvg."""

    about: ClassVar[About] = About(
        title="Logits calibrated by class counts", paper="Zhang et al. 2022", kind="objective"
    )
    grid: ClassVar[SearchSpace] = {"tau": (0.01, 0.1, 0.5, 1.0)}

    replaces = frozenset({Aspect.LOSS})
    needs_classes = True

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Compute what is subtracted from each logit: infinity for a class without samples."""
        counts = class_counts(client)
        margins = self.tau * counts**-0.25 if self.tau else torch.zeros_like(counts)
        return replace(start, refs={"margins": margins})

    def losses(self, step: Step, refs: Tensors) -> Tensor:
        """Return the cross-entropy of the calibrated logits."""
        logits = step.network(step.weights, step.buffers, step.batch.x)
        margins = for_outputs(refs["margins"], logits, math.inf if self.tau else 0.0)
        return cross_entropy(logits - margins, step.batch.y)
