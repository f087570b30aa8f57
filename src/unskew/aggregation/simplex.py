"""The nearest point of the simplex: for weights that follow a gradient."""

import torch
from torch import Tensor


def nearest_on_simplex(values: Tensor) -> Tensor:
    """Return the closest non-negative numbers that sum to one.

    All are lowered (or raised) by the same amount, and what falls below 0 becomes 0.
    """
    ordered = values.sort(descending=True).values
    excess = ordered.cumsum(0) - 1
    ranks = torch.arange(1, len(values) + 1, dtype=values.dtype)
    last = int((ordered * ranks > excess).nonzero().max())
    return (values - excess[last] / ranks[last]).clamp(min=0)
