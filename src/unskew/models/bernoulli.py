"""The goal of a network whose outputs are the logits of Bernoulli features."""

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from unskew.errors import UnskewError
from unskew.models.goals import Goal, Measures
from unskew.models.unit_interval import check_unit_interval

if TYPE_CHECKING:
    from unskew.data.federation import Federation
    from unskew.models.functional import Batch, Buffers, FunctionalModel

_SURE = 40.0
"""Logits above it are their own softplus, also in double precision."""


def bernoulli_losses(logits: Tensor, x: Tensor) -> Tensor:
    """Return ``-sum_d [x_d log p_d + (1 - x_d) log(1 - p_d)]`` of each row, ``p`` the sigmoid.

    Written as ``softplus(logit) - x logit`` it neither overflows nor takes the logarithm of 0, and
    its gradient is exactly ``p - x``. Grey levels between 0 and 1 are soft targets.
    """
    return (F.softplus(logits, threshold=_SURE) - x * logits).sum(-1)


class Density(Goal):
    """Telling how likely a sample is: the negative log-likelihood in nats, summed over features."""

    def check(self, federation: "Federation") -> None:
        """Take features from 0 to 1, or bytes."""
        if federation.vocabulary is not None:
            raise UnskewError("a MADE is a density of numbers from 0 to 1; this data set is text")
        check_unit_interval(federation.train.x, "features")

    def losses(
        self, network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
    ) -> Tensor:
        """Return each sample's binary cross-entropy, summed over its features."""
        return bernoulli_losses(network(weights, buffers, batch.x), batch.x.flatten(1))

    def measures(
        self, network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
    ) -> Measures:
        """Return the same, summed in double precision."""
        logits = network(weights, buffers, batch.x).double()
        return {"loss": bernoulli_losses(logits, batch.x.flatten(1).double())}


DENSITY = Density()
