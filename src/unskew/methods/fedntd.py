"""FedNTD: what the global model knows of the classes a client does not see is not forgotten.

Lee et al., "Preservation of the Global Knowledge by Not-True Distillation in Federated Learning",
2022. The local model is drawn to the global one's opinion of all classes but the true one.
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

_NEVER = -1e9
"""A logit that no class with it is ever named; finite, so that differences of it are too."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedNTD(Method):
    """FedAvg with distillation of the not-true classes."""

    beta: Annotated[float, Field(ge=0)] = 1.0
    """Strength of the distillation. 0 is FedAvg."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Logits are divided by it in the distillation; the higher, the more alike classes count."""

    about: ClassVar[About] = About(
        title="Not-true distillation", paper="Lee et al. 2022", kind="objective"
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"beta": (0.1, 0.3, 0.5, 1.0)}

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Keep the model received as the teacher."""
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
        """Add ``beta t^2 KL(teacher || own)`` over the classes that are not true."""
        if not self.beta:
            return super().objective(network, weights, buffers, batch, refs)
        with network.capture_passes() as passes:
            loss = super().objective(network, weights, buffers, batch, refs)
        own, taught = passes[0].output, network.forward_eval(refs["ntd_teacher"], batch.x).output
        divergence = not_true_divergence(taught, own, batch.y, self.temperature)
        return loss + self.beta * self.temperature**2 * (divergence * batch.scale).sum()


def not_true_divergence(taught: Tensor, own: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Return, a sample, the KL divergence of two sets of logits without the true class."""
    true = torch.arange(own.shape[-1], device=y.device) == y.unsqueeze(-1)
    teacher = F.log_softmax(torch.where(true, _NEVER, taught / temperature), dim=-1)
    pupil = F.log_softmax(torch.where(true, _NEVER, own / temperature), dim=-1)
    return (teacher.exp() * (teacher - pupil)).sum(-1)
