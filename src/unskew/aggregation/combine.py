"""Combining the rows of a stack into one vector."""

from collections.abc import Callable

import torch
from torch import Tensor

from unskew.aggregation import blocks
from unskew.aggregation.blocks import on_blocks
from unskew.models.layout import Layout

_NARROW, _PARTS, _WIDE = 1 << 12, 8, 1 << 16
"""Columns of a part at least, parts if these are wider, columns of a part at most."""


def weighted_sum(stack: Tensor, weights: Tensor, layout: Layout) -> Tensor:
    """Average the rows by weight; counters take the largest value instead."""
    vector = sum_of_rows(stack, weights.to(stack))
    _largest_counters(vector, stack, layout)
    return vector


def sum_of_rows(rows: Tensor, weights: Tensor) -> Tensor:
    """Return the sum of the rows by weights of their type, in one pass over their memory.

    Of a large matrix it is a batch of products, one for each part of the columns: a single
    product, which all threads share, takes a third longer, or twice as long if it is wide. The
    parts depend on no thread, so neither does the sum.
    """
    clients, columns = rows.shape
    parts = max(min(_PARTS, columns // _NARROW), columns // _WIDE)
    if rows.numel() < blocks.WORTH_SHARING or parts < 2:
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
    """Apply a coordinate-wise rule to parameters and floating buffers, a block at a time.

    The rule turns clients x columns, and memory of that shape to compute in, into one value a
    column, and what it makes of all values times a number is its result times that number;
    counters take the largest value.
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
    """Tell whether all numbers are finite; of numbers whose sum overflows it may say no."""
    return bool(vector.sum().isfinite())


def _without_overflow(
    vector: Tensor, stack: Tensor, rule: Callable[[Tensor, Tensor], Tensor]
) -> None:
    """Compute columns that are not finite again, from values whose sum float32 can hold."""
    small = 0.5 ** (len(stack).bit_length() + 1)

    def work(block: Tensor, scratch: Tensor, columns: slice) -> None:
        again = rule(block * small, scratch) / small
        vector[columns] = torch.where(vector[columns].isfinite(), vector[columns], again)

    on_blocks(stack, work)


def _largest_counters(vector: Tensor, stack: Tensor, layout: Layout) -> None:
    counters = layout.counters
    if counters.start < counters.stop:
        vector[counters] = stack[:, counters].amax(0)
