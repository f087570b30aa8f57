"""The goal of a network: the loss of each training sample and the metrics of each test sample.

A module names its goal in the attribute ``goal``; a module without it is a classifier. Everything
else (rounds, runners, methods, evaluation) is the same for all goals.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from unskew.data.federation import Federation
    from unskew.models.functional import Batch, Buffers, FunctionalModel

SampleMetrics = dict[str, Tensor]
"""By metric, one value per sample."""


class Goal(ABC):
    """The losses and metrics of a network."""

    noise_per_sample: int = 0
    """How many random numbers the loss of one sample needs; they are in ``batch.noise``."""

    predicts: Literal["classes", "values", "neither"] = "neither"
    """What the network predicts of a sample: a class, a value, or neither of them."""

    target_dtype: torch.dtype = torch.int64
    """The type of the targets in a batch."""

    def predictions(self, output: Tensor) -> Tensor:
        """Return predictions in float64: one probability per class, or one value per sample."""
        raise NotImplementedError

    def check(self, federation: "Federation") -> None:
        """Raise if networks with this goal cannot learn from the samples."""
        del federation

    @abstractmethod
    def losses(
        self, network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
    ) -> Tensor:
        """Return each sample's loss: a pure function, so that it can run for many clients."""

    @abstractmethod
    def metrics(
        self, network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
    ) -> SampleMetrics:
        """Return the metrics of each test sample, which always include ``loss``."""


class Classification(Goal):
    """Classification: cross-entropy and accuracy."""

    predicts = "classes"

    def predictions(self, output: Tensor) -> Tensor:
        """Return the probability of each class."""
        return F.softmax(output.double(), dim=-1)

    def losses(
        self, network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
    ) -> Tensor:
        """Return each sample's cross-entropy.

        It does not call ``F.cross_entropy``, which vmap decomposes step by step in Python.
        """
        scores = F.log_softmax(network(weights, buffers, batch.x), dim=-1)
        return -scores.gather(-1, batch.y.unsqueeze(-1)).squeeze(-1)

    def metrics(
        self, network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
    ) -> SampleMetrics:
        """Return whether each sample was classified correctly, and its cross-entropy."""
        output = network(weights, buffers, batch.x)
        return {
            "accuracy": (output.argmax(-1) == batch.y).double(),
            "loss": F.cross_entropy(output, batch.y, reduction="none").double(),
        }


CLASSIFY = Classification()
