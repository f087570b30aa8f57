"""FedROD: a generic head trained with a class-balanced loss, and a personal head.

Chen and Chao, "On Bridging Generic and Personalized Federated Learning for Image Classification",
2022. Body and generic head are trained by balanced softmax and averaged; the personal head is
trained by plain cross-entropy on top of the generic logits.
"""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.composition.parts import Aspect, ClientSide, Personalization, Setup
from unskew.composition.values import About, Client, Start, Step, Tensors
from unskew.methods.common.class_losses import cross_entropy
from unskew.models.layout import Layout
from unskew.models.split import split
from unskew.models.two_heads import HyperHead, TwoHeads, zero_head
from unskew.utils.specs import OPTIONS

_PROPORTIONS = "personal.proportions"


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedROD(ClientSide, Personalization, Setup):
    """Two predictors: generic (the global model) and personal (both heads)."""

    head: Literal["own", "hypernetwork"] = "own"
    """Source of the personal head: the client trains its "own", or a shared "hypernetwork" computes
    it from the client's class proportions."""
    hidden: Annotated[int, Field(ge=1)] = 16
    """Hidden units of the hypernetwork."""
    gamma: Annotated[float, Field(ge=0)] = 1.0
    """Exponent of the class counts in the balanced softmax. 0 is a plain softmax."""

    about: ClassVar[About] = About(
        title="Generic and personal head",
        paper="Chen and Chao 2022",
        kind="personal",
        level="personal",
    )

    replaces = frozenset({Aspect.LOSS})
    adapts_last = True
    works_without_own = True
    needs_classes = True

    def adapt(self, module: nn.Module, example: Tensor) -> nn.Module:
        """Add a personal head to the network."""
        parts = split(module, example, "fedrod")
        width, classes = parts.head.in_features, parts.head.out_features
        if self.head == "own":
            return TwoHeads(parts, zero_head(width, classes))
        return TwoHeads(parts, HyperHead(width, classes, self.hidden))

    def stays(self, layout: Layout) -> Tensor:
        """Keep the personal head on the client, or the class proportions it is computed from."""
        prefix = "personal." if self.head == "own" else _PROPORTIONS
        return layout.mask_where(lambda entry: entry.name.startswith(prefix))

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Count the client's classes, for the balanced softmax and the hypernetwork."""
        entries = {entry.name: entry for entry in client.network.layout}
        outputs = entries["head.weight"].shape[0]
        counts = torch.bincount(client.y.long(), minlength=outputs).float()
        # A class without samples has -inf: it is excluded from the softmax and gets no gradient.
        offsets = self.gamma * counts.log() if self.gamma else torch.zeros_like(counts)
        vector = start.vector
        if self.head == "hypernetwork":
            vector = vector.clone()
            vector[entries[_PROPORTIONS].slice] = counts / counts.sum().clamp(min=1)
        return replace(start, vector=vector, refs={"log_counts": offsets})

    def losses(self, step: Step, refs: Tensors) -> Tensor:
        """Return balanced softmax of the generic head, plus cross-entropy of both heads.

        The second trains only the personal head: features and generic logits are detached.
        """
        network, weights, buffers, y = step.network, step.weights, step.buffers, step.batch.y
        with network.capture_passes() as passes:
            network(weights, buffers, step.batch.x)
        features = passes[0].features
        assert features is not None
        generic = network.part("head", weights, buffers, features)
        personal = network.part("personal", weights, buffers, features.detach())
        balanced = cross_entropy(generic + refs["log_counts"], y)
        return balanced + cross_entropy(generic.detach() + personal, y)
