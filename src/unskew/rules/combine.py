"""Combining the rows of a stack into one vector."""

from collections.abc import Callable

import torch
from torch import Tensor

from unskew.layout import Layout
from unskew.rules.blocks import empty_vector, in_threads, on_blocks

_WIDE = 1 << 18
"""Columns that are worth a product of their own."""


def weighted_sum(stack: Tensor, weights: Tensor, layout: Layout) -> Tensor:
    """Average the rows by weight; counters take the largest value instead.

    Matrix-vector products, which read the stack's memory once. Of a wide stack each thread takes
    its own columns: a single product that all share takes half as long again.
    """
    vector, weights = empty_vector(stack), weights.to(stack)
    width = stack.shape[1]
    pieces = max(1, width // _WIDE)

    def work(piece: int) -> None:
        columns = slice(piece * width // pieces, (piece + 1) * width // pieces)
        torch.mv(stack[:, columns].T, weights, out=vector[columns])

    if pieces == 1:
        work(0)
    else:
        in_threads(work, range(pieces), stack)
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
