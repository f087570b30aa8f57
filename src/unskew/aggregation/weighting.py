"""Client weightings: from one round's uploads to one weight per client.

``weighting(uploads)`` returns the weights, ``weighting.explain(uploads)`` returns them together
with the values they are derived from, such as distances, accuracies or discrepancies.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.aggregation.uploads import Uploads

Diagnostics = dict[str, Tensor]
"""Diagnostic tensors by name: one weight per client under ``weights``, if there is one, and the
values that weights are derived from."""


@dataclass(frozen=True)
class ClientWeighting:
    """Assigns each client a weight; the weights are non-negative and sum to one.

    ``derive`` returns raw weights on any scale, and the values they are derived from.
    """

    name: str
    derive: Callable[[Uploads], tuple[Tensor, Diagnostics]]

    def __call__(self, uploads: Uploads) -> Tensor:
        """Return the weights without diagnostics."""
        return on_simplex(self.derive(uploads)[0])

    def explain(self, uploads: Uploads) -> Diagnostics:
        """Return the weights under ``weights``, and the values they are derived from."""
        raw, diagnostics = self.derive(uploads)
        return {"weights": on_simplex(raw), **diagnostics}


def uniform() -> ClientWeighting:
    """Give every client the same weight; averaging with it is the method Mean."""

    def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        return torch.ones(len(uploads), dtype=torch.float64), {}

    return ClientWeighting("uniform", derive)


def by_samples() -> ClientWeighting:
    """Weight clients by their number of training samples; averaging with it is FedAvg."""

    def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        return uploads.samples, {"samples": uploads.samples}

    return ClientWeighting("by_samples", derive)


def on_simplex(raw: Tensor) -> Tensor:
    """Normalise raw weights to sum to one; raise if they are not valid weights."""
    raw = raw.to(torch.float64)
    if not bool(torch.isfinite(raw).all()) or bool((raw < 0).any()) or not bool(raw.any()):
        raise ValueError(f"weights must be finite, non-negative and not all zero: {raw.tolist()}")
    total = raw.sum()
    if not bool(torch.isfinite(total)):  # the sum of huge weights overflowed
        return on_simplex(raw / raw.max())
    return raw / total
