"""FedNTD: distillation preserves the global model's knowledge of classes a client lacks.

Lee et al., "Preservation of the Global Knowledge by Not-True Distillation in Federated Learning",
2022. The global model's predictions for all classes but the true one are distilled into the local
model.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.methods.common.base import About, Client, Method, Start, Tensors
from unskew.models.functional import Batch, Buffers, FunctionalModel
from unskew.utils.specs import OPTIONS

_MASKED_LOGIT = -1e9
"""The logit of a class that is left out; finite, so that differences of logits are finite too."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedNTD(Method):
    """FedAvg with distillation over the not-true classes."""

    beta: Annotated[float, Field(ge=0)] = 1.0
    """Strength of the distillation. 0 is FedAvg."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divisor of the logits in the distillation; higher weights the classes more equally."""

    about: ClassVar[About] = About(
        title="Not-true distillation", paper="Lee et al. 2022", kind="objective"
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"beta": (0.1, 0.3, 0.5, 1.0)}

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Keep the received model as the teacher."""
        start = super().prepare(client, payload, state)
        teacher = self.received(client, payload, state)
        return replace(start, refs={**start.refs, "ntd_teacher": teacher})

    def objective(
        self,
        network: FunctionalModel,
        weights: Tensor,
        buffers: Buffers,
        batch: Batch,
        refs: Tensors,
    ) -> Tensor:
        """Add ``beta t^2 KL(teacher || student)`` over the classes that are not true."""
        if not self.beta:
            return super().objective(network, weights, buffers, batch, refs)
        with network.capture_passes() as passes:
            loss = super().objective(network, weights, buffers, batch, refs)
        student, teacher = (
            passes[0].output,
            network.forward_eval(refs["ntd_teacher"], batch.x).output,
        )
        divergence = not_true_divergence(teacher, student, batch.y, self.temperature)
        return loss + self.beta * self.temperature**2 * (divergence * batch.scale).sum()


def not_true_divergence(teacher: Tensor, student: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Return, per sample, the KL divergence of two sets of logits without the true class."""
    true = torch.arange(student.shape[-1], device=y.device) == y.unsqueeze(-1)
    log_p = F.log_softmax(torch.where(true, _MASKED_LOGIT, teacher / temperature), dim=-1)
    log_q = F.log_softmax(torch.where(true, _MASKED_LOGIT, student / temperature), dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)
