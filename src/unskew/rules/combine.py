"""Combining the rows of a stack into one vector."""

import torch
from torch import Tensor

from unskew.layout import Layout


def weighted_sum(stack: Tensor, weights: Tensor, layout: Layout) -> Tensor:
    """Average the rows by weight; counters take the largest value instead.

    One matrix-vector product: a single pass over the stack's memory.
    """
    vector = torch.mv(stack.T, weights.to(stack.dtype))
    counters = layout.counters
    if counters.start < counters.stop:
        vector[counters] = stack[:, counters].amax(0)
    return vector
