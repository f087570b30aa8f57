"""Aggregation rules: from one round's uploads to the vector of the new global model.

``rule(uploads)`` returns the vector, ``rule.apply(uploads)`` the vector and its diagnostics.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from unskew.aggregation.combine import weighted_sum
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics


@dataclass(frozen=True)
class Rule:
    """An aggregation rule that combines a round's uploads into one vector."""

    name: str
    apply: Callable[[Uploads], tuple[Tensor, Diagnostics]]

    def __call__(self, uploads: Uploads) -> Tensor:
        """Return the vector without diagnostics."""
        return self.apply(uploads)[0]


def weighted_mean(weighting: ClientWeighting) -> Rule:
    """Average parameters and floating buffers by the weights of a client weighting."""

    def apply(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        diagnostics = weighting.explain(uploads)
        return weighted_sum(uploads.stack, diagnostics["weights"], uploads.layout), diagnostics

    return Rule(weighting.name, apply)
