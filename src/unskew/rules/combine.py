"""Combining the rows of a stack into one vector."""

from collections.abc import Callable

import torch
from torch import Tensor

from unskew.layout import Layout
from unskew.rules.blocks import empty_vector, on_blocks


def weighted_sum(stack: Tensor, weights: Tensor, layout: Layout) -> Tensor:
    """Average the rows by weight; counters take the largest value instead.

    One matrix-vector product: a single pass over the stack's memory.
    """
    vector = empty_vector(stack)
    torch.mv(stack.T, weights.to(stack), out=vector)
    _largest_counters(vector, stack, layout)
    return vector


def by_coordinate(
    stack: Tensor, layout: Layout, rule: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Apply a coordinate-wise rule to parameters and floating buffers, a block at a time.

    The rule turns clients x columns, and memory of that shape to compute in, into one value a
    column; counters take the largest value.
    """
    vector = empty_vector(stack)

    def work(block: Tensor, scratch: Tensor, columns: slice) -> None:
        vector[columns] = rule(block, scratch)

    on_blocks(stack[:, : layout.counters.start], work)
    _largest_counters(vector, stack, layout)
    return vector


def _largest_counters(vector: Tensor, stack: Tensor, layout: Layout) -> None:
    counters = layout.counters
    if counters.start < counters.stop:
        vector[counters] = stack[:, counters].amax(0)
