"""FedROD: a generic head trained as if classes were balanced, and a personal one beside it.

Chen and Chao, "On Bridging Generic and Personalized Federated Learning for Image Classification",
2022. Body and generic head learn by balanced softmax and are averaged; the personal head learns,
by plain cross-entropy, what to add for the client's own classes.
"""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.methods.common.base import About, Client, Method, Start, Tensors
from unskew.models.functional import Batch, Buffers, FunctionalModel
from unskew.models.layout import Layout
from unskew.models.split import split
from unskew.models.two_heads import HyperHead, TwoHeads, zero_head
from unskew.utils.specs import OPTIONS

_PROPORTIONS = "personal.proportions"


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedROD(Method):
    """Two predictions: generic (the global model) and personal (both heads)."""

    head: Literal["own", "hypernetwork"] = "own"
    """Where the personal head comes from: it is the client's "own", or a shared "hypernetwork"
    makes it of the client's class proportions."""
    hidden: Annotated[int, Field(ge=1)] = 16
    """Hidden units of the hypernetwork."""
    gamma: Annotated[float, Field(ge=0)] = 1.0
    """Exponent of the class counts in the balanced softmax. 0 makes it plain."""

    about: ClassVar[About] = About(
        title="Generic and personal head",
        paper="Chen and Chao 2022",
        kind="personal",
        level="personal",
    )

    def adapt(self, module: nn.Module, example: Tensor) -> nn.Module:
        """Set a personal head beside the network's own."""
        parts = split(super().adapt(module, example), example, "fedrod")
        width, classes = parts.head.in_features, parts.head.out_features
        if self.head == "own":
            return TwoHeads(parts, zero_head(width, classes))
        return TwoHeads(parts, HyperHead(width, classes, self.hidden))

    def travels(self, layout: Layout) -> Tensor | None:
        """Keep the personal head on the client, or the proportions it is made of."""
        everything = torch.ones(layout.size, dtype=torch.bool)
        inherited = super().travels(layout)
        mask = everything if inherited is None else inherited.clone()
        own = "personal." if self.head == "own" else _PROPORTIONS
        for entry in layout:
            if entry.name.startswith(own):
                mask[entry.place] = False
        return mask

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Count the client's classes: the logarithms balance, the proportions make a head."""
        start = super().prepare(client, payload, state)
        entries = {entry.name: entry for entry in client.network.layout}
        outputs = entries["head.weight"].shape[0]
        counts = torch.bincount(client.y.long(), minlength=outputs).float()
        # A class without samples has -inf: it takes no part in the softmax, and gets no gradient.
        offsets = self.gamma * counts.log() if self.gamma else torch.zeros_like(counts)
        vector = start.vector
        if self.head == "hypernetwork":
            vector = vector.clone()
            vector[entries[_PROPORTIONS].place] = counts / counts.sum().clamp(min=1)
        return replace(start, vector=vector, refs={**start.refs, "log_counts": offsets})

    def losses(
        self,
        network: FunctionalModel,
        weights: Tensor,
        buffers: Buffers,
        batch: Batch,
        refs: Tensors,
    ) -> Tensor:
        """Return balanced softmax of the generic head, plus cross-entropy of both heads.

        The second teaches the personal head alone: features and generic logits are held fixed.
        """
        with network.capture_passes() as passes:
            network(weights, buffers, batch.x)
        features = passes[0].features
        assert features is not None
        generic = network.part("head", weights, buffers, features)
        own = network.part("personal", weights, buffers, features.detach())
        balanced = _cross_entropy(generic + refs["log_counts"], batch.y)
        return balanced + _cross_entropy(generic.detach() + own, batch.y)


def _cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    return -F.log_softmax(logits, dim=-1).gather(-1, y.unsqueeze(-1)).squeeze(-1)
