"""Weighers: from one round's uploads to one weight a client."""

from collections.abc import Callable

import torch
from torch import Tensor

from unskew.rules.uploads import Uploads

Weigher = Callable[[Uploads], Tensor]
"""A rule that gives each client a weight; the weights are non-negative and sum to one."""


def uniform() -> Weigher:
    """Give every client the same weight: the rule called Mean."""

    def weigh(uploads: Uploads) -> Tensor:
        return on_simplex(torch.ones(len(uploads), dtype=torch.float64))

    return weigh


def by_samples() -> Weigher:
    """Weigh clients by how many samples they trained on: the rule called FedAvg."""

    def weigh(uploads: Uploads) -> Tensor:
        return on_simplex(uploads.samples)

    return weigh


def on_simplex(raw: Tensor) -> Tensor:
    """Scale raw weights to sum to one; the one place where the simplex contract is asserted."""
    raw = raw.to(torch.float64)
    total = raw.sum()
    if not bool(torch.isfinite(raw).all()) or bool((raw < 0).any()) or not float(total) > 0:
        raise ValueError(f"weights must be finite, non-negative and not all zero: {raw.tolist()}")
    return raw / total
