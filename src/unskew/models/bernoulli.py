"""The goal of a network whose outputs are the logits of Bernoulli features."""

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from unskew.errors import UnskewError
from unskew.models.goals import Goal, SampleMetrics
from unskew.models.unit_interval import check_unit_interval

if TYPE_CHECKING:
    from unskew.data.federation import Federation
    from unskew.models.functional import Batch, Buffers, FunctionalModel

_SOFTPLUS_THRESHOLD = 40.0
"""Logits above it equal their softplus, also in double precision."""


def bernoulli_losses(logits: Tensor, x: Tensor) -> Tensor:
    """Return ``-sum_d [x_d log p_d + (1 - x_d) log(1 - p_d)]`` per row, where p = sigmoid(logit).

    Written as ``softplus(logit) - x logit`` it neither overflows nor takes the logarithm of 0, and
    its gradient is exactly ``p - x``. Grey levels between 0 and 1 are soft targets.
    """
    return (F.softplus(logits, threshold=_SOFTPLUS_THRESHOLD) - x * logits).sum(-1)


class Density(Goal):
    """Density estimation: the negative log-likelihood in nats, summed over features."""

    def check(self, federation: "Federation") -> None:
        """Raise unless the features are bytes or numbers from 0 to 1."""
        if federation.vocabulary is not None:
            raise UnskewError("a MADE is a density of numbers from 0 to 1; this data set is text")
        check_unit_interval(federation.train.x, "features")

    def losses(
        self, network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
    ) -> Tensor:
        """Return each sample's binary cross-entropy, summed over its features."""
        return bernoulli_losses(network(weights, buffers, batch.x), batch.x.flatten(1))

    def metrics(
        self, network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
    ) -> SampleMetrics:
        """Return the same as ``loss``, summed in double precision."""
        logits = network(weights, buffers, batch.x).double()
        return {"loss": bernoulli_losses(logits, batch.x.flatten(1).double())}


DENSITY_GOAL = Density()
