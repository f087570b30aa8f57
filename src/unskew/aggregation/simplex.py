"""Projection onto the probability simplex, for weights that are updated by a gradient."""

import torch
from torch import Tensor


def nearest_on_simplex(values: Tensor) -> Tensor:
    """Return the closest non-negative numbers that sum to one.

    All values are shifted by the same amount, and negative results become 0.
    """
    ordered = values.sort(descending=True).values
    excess = ordered.cumsum(0) - 1
    ranks = torch.arange(1, len(values) + 1, dtype=values.dtype)
    last = int((ordered * ranks > excess).nonzero().max())
    return (values - excess[last] / ranks[last]).clamp(min=0)
