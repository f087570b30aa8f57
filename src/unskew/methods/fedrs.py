"""FedRS: the softmax is restricted for classes that a client does not have.

Li and Zhan, "FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID
Data", 2021. In the local cross-entropy, the logits of missing classes are multiplied by alpha, so
that local training pushes their weights away less.
"""

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
class FedRS(ClientSide):
    """FedAvg with a restricted softmax in the local loss."""

    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Factor of the logits of missing classes. 1 is FedAvg."""
    soft: bool = False
    """Whether the factor grows from alpha to 1 with a class's number of samples, in proportion to
    the most frequent class; else it is 1 for every class that the client has."""

    about: ClassVar[About] = About(
        title="Restricted softmax", paper="Li and Zhan 2021", kind="objective"
    )
    grid: ClassVar[SearchSpace] = {"alpha": (0.1, 0.3, 0.5, 0.7, 0.9)}

    replaces = frozenset({Aspect.LOSS})
    needs_classes = True

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Compute each logit's factor."""
        counts = class_counts(client)
        shares = counts / counts.max().clamp(min=1) if self.soft else (counts > 0).float()
        return replace(start, refs={"factors": torch.lerp(shares, torch.ones(()), self.alpha)})

    def losses(self, step: Step, refs: Tensors) -> Tensor:
        """Return the cross-entropy of the restricted logits."""
        logits = step.network(step.weights, step.buffers, step.batch.x)
        factors = for_outputs(refs["factors"], logits, self.alpha)
        return cross_entropy(logits * factors, step.batch.y)
