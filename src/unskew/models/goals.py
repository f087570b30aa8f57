"""What a network is trained for: the loss of each sample, and what is measured on test samples.

A module says its goal in an attribute ``goal``; one without it classifies. Everything else (rounds,
runners, methods, evaluation) is the same for all goals.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from unskew.data.federation import Federation
    from unskew.models.functional import Batch, Buffers, FunctionalModel

Measures = dict[str, Tensor]
"""By name, one number a sample."""


class Goal(ABC):
    """What a network is trained for."""

    noise_per_sample: int = 0
    """How many random numbers the loss of one sample takes; they come as ``batch.chance``."""

    def check(self, federation: "Federation") -> None:
        """Complain about samples that networks of this goal cannot learn from."""
        del federation

    @abstractmethod
    def losses(
        self, network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
    ) -> Tensor:
        """Return each sample's loss: a pure function, so that it can run for many clients."""

    @abstractmethod
    def measures(
        self, network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
    ) -> Measures:
        """Return what is measured of each test sample; ``loss`` is always among it."""


class Classification(Goal):
    """Naming the class: cross-entropy, and the share of samples named right."""

    def losses(
        self, network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
    ) -> Tensor:
        """Return each sample's cross-entropy.

        Spelled out, because torch's own is taken apart step by step in Python under vmap.
        """
        scores = F.log_softmax(network(weights, buffers, batch.x), dim=-1)
        return -scores.gather(-1, batch.y.unsqueeze(-1)).squeeze(-1)

    def measures(
        self, network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
    ) -> Measures:
        """Return whether each sample was named right, and its cross-entropy."""
        output = network(weights, buffers, batch.x)
        return {
            "accuracy": (output.argmax(-1) == batch.y).double(),
            "loss": F.cross_entropy(output, batch.y, reduction="none").double(),
        }


CLASSIFY = Classification()
