"""Combine the rows of a stack into one vector."""

from collections.abc import Callable

import torch
from torch import Tensor

from unskew.aggregation import blocks
from unskew.aggregation.blocks import on_blocks
from unskew.models.layout import Layout

_MIN_WIDTH, _NUM_PARTS, _MAX_WIDTH = 1 << 12, 8, 1 << 16
"""Bounds on the columns per part, and the number of parts if their width is within the bounds."""


def weighted_sum(stack: Tensor, weights: Tensor, layout: Layout) -> Tensor:
    """Return the weighted sum of the rows; counters take the largest value instead."""
    vector = sum_of_rows(stack, weights.to(stack))
    _largest_counters(vector, stack, layout)
    return vector


def sum_of_rows(rows: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of the rows in one pass; weights have the dtype of the rows.

    For a large matrix this is a batched product with one item per part of the columns: a single
    product shared by all threads takes a third longer, or twice as long for a wide matrix. The
    parts do not depend on the number of threads, so neither does the sum.
    """
    clients, columns = rows.shape
    parts = max(min(_NUM_PARTS, columns // _MIN_WIDTH), columns // _MAX_WIDTH)
    if rows.numel() < blocks.MIN_PARALLEL_SIZE or parts < 2:
        return torch.mv(rows.T, weights)
    vector = rows.new_empty(columns)
    width = columns // parts
    even = parts * width
    torch.bmm(
        weights.expand(parts, 1, clients),
        rows[:, :even].view(clients, parts, width).transpose(0, 1),
        out=vector[:even].view(parts, 1, width),
    )
    if even < columns:
        torch.mv(rows[:, even:].T, weights, out=vector[even:])
    return vector


def by_coordinate(
    stack: Tensor, layout: Layout, rule: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Apply a coordinate-wise rule to parameters and floating buffers, block by block.

    The rule maps clients x columns, and scratch memory of that shape, to one value per column. It
    must be homogeneous: scaling all values scales its result. Counters take the largest value.
    """
    vector = stack.new_empty(stack.shape[1])
    others = slice(layout.counters.start)

    def work(block: Tensor, scratch: Tensor, columns: slice) -> None:
        vector[columns] = rule(block, scratch)

    on_blocks(stack[:, others], work)
    if not all_finite(vector[others]):
        _without_overflow(vector[others], stack[:, others], rule)
    _largest_counters(vector, stack, layout)
    return vector


def all_finite(vector: Tensor) -> bool:
    """Return whether all numbers are finite; may be False for numbers whose sum overflows."""
    return bool(vector.sum().isfinite())


def _without_overflow(
    vector: Tensor, stack: Tensor, rule: Callable[[Tensor, Tensor], Tensor]
) -> None:
    """Recompute non-finite columns from scaled values whose sum float32 can represent."""
    scale = 0.5 ** (len(stack).bit_length() + 1)

    def work(block: Tensor, scratch: Tensor, columns: slice) -> None:
        rescaled = rule(block * scale, scratch) / scale
        vector[columns] = torch.where(vector[columns].isfinite(), vector[columns], rescaled)

    on_blocks(stack, work)


def _largest_counters(vector: Tensor, stack: Tensor, layout: Layout) -> None:
    counters = layout.counters
    if counters.start < counters.stop:
        vector[counters] = stack[:, counters].amax(0)
