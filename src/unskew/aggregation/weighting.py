"""Weighers: from one round's uploads to one weight a client.

``weigher(uploads)`` returns the weights, ``weigher.explain(uploads)`` returns them together with
what they were derived from: distances, accuracies, discrepancies.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.aggregation.uploads import Uploads

Reasons = dict[str, Tensor]
"""What weights were derived from, by name."""


@dataclass(frozen=True)
class ClientWeighting:
    """A rule that gives each client a weight; the weights are non-negative and sum to one.

    ``derive`` returns raw weights on any scale, and the numbers they come from.
    """

    name: str
    derive: Callable[[Uploads], tuple[Tensor, Reasons]]

    def __call__(self, uploads: Uploads) -> Tensor:
        """Return the weights alone."""
        return on_simplex(self.derive(uploads)[0])

    def explain(self, uploads: Uploads) -> Reasons:
        """Return the weights under ``weights``, and what they were derived from."""
        raw, reasons = self.derive(uploads)
        return {"weights": on_simplex(raw), **reasons}


def uniform() -> ClientWeighting:
    """Give every client the same weight: the rule called Mean."""

    def derive(uploads: Uploads) -> tuple[Tensor, Reasons]:
        return torch.ones(len(uploads), dtype=torch.float64), {}

    return ClientWeighting("uniform", derive)


def by_samples() -> ClientWeighting:
    """Weigh clients by how many samples they trained on: the rule called FedAvg."""

    def derive(uploads: Uploads) -> tuple[Tensor, Reasons]:
        return uploads.samples, {"samples": uploads.samples}

    return ClientWeighting("by_samples", derive)


def on_simplex(raw: Tensor) -> Tensor:
    """Scale raw weights to sum to one; the one place where the simplex contract is asserted."""
    raw = raw.to(torch.float64)
    if not bool(torch.isfinite(raw).all()) or bool((raw < 0).any()) or not bool(raw.any()):
        raise ValueError(f"weights must be finite, non-negative and not all zero: {raw.tolist()}")
    total = raw.sum()
    if not bool(torch.isfinite(total)):  # the sum of huge weights overflowed
        return on_simplex(raw / raw.max())
    return raw / total
