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

from unskew.composition.parts import Aspect, ClientSide
from unskew.composition.values import About, Client, Start, Step, Tensors
from unskew.utils.specs import OPTIONS

_MASKED_LOGIT = -1e9
"""The logit of a class that is left out; finite, so that differences of logits are finite too."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedNTD(ClientSide):
    """FedAvg with distillation over the not-true classes."""

    beta: Annotated[float, Field(ge=0)] = 1.0
    """Strength of the distillation. 0 is FedAvg."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divisor of the logits in the distillation; higher weights the classes more equally."""

    about: ClassVar[About] = About(
        title="Not-true distillation", paper="Lee et al. 2022", kind="objective"
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"beta": (0.03, 0.1, 0.3, 0.5, 1.0)}

    adds = frozenset({Aspect.LOCAL_LOSS})
    needs_classes = True
    reads_forward_pass = True

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Keep the received model as the teacher."""
        return replace(start, refs={"teacher": start.received})

    def loss_term(self, step: Step, refs: Tensors) -> Tensor | None:
        """Return ``beta t^2 KL(teacher || student)`` over the classes that are not true."""
        if not self.beta:
            return None
        assert step.forward_pass is not None
        teacher = step.network.forward_eval(refs["teacher"], step.batch.x).output
        student, y = step.forward_pass.output, step.batch.y
        divergence = not_true_divergence(teacher, student, y, self.temperature)
        return self.beta * self.temperature**2 * (divergence * step.batch.scale).sum()


def not_true_divergence(teacher: Tensor, student: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Return, per sample, the KL divergence of two sets of logits without the true class."""
    true = torch.arange(student.shape[-1], device=y.device) == y.unsqueeze(-1)
    log_p = F.log_softmax(torch.where(true, _MASKED_LOGIT, teacher / temperature), dim=-1)
    log_q = F.log_softmax(torch.where(true, _MASKED_LOGIT, student / temperature), dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)
