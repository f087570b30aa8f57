"""Coordinate rules: from one round's uploads to the vector of the new global model.

``rule(uploads)`` returns the vector, ``rule.apply(uploads)`` the vector and its diagnostics.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from unskew.aggregation.combine import weighted_sum
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting

Diagnostics = dict[str, Tensor]
"""What a rule found on the way; ``weights`` where it gives each client one weight."""


@dataclass(frozen=True)
class Rule:
    """A rule that makes one vector of a round's uploads."""

    name: str
    apply: Callable[[Uploads], tuple[Tensor, Diagnostics]]

    def __call__(self, uploads: Uploads) -> Tensor:
        """Return the vector alone."""
        return self.apply(uploads)[0]


def weighted_mean(weighting: ClientWeighting) -> Rule:
    """Average the clients by a weigher's weights: parameters and floating buffers alike."""

    def apply(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        reasons = weighting.explain(uploads)
        return weighted_sum(uploads.stack, reasons["weights"], uploads.layout), reasons

    return Rule(weighting.name, apply)
