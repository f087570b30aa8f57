"""Distances between models, computed on the trainable coordinates only.

Rows are float32 of any scale, so squares and sums must neither overflow nor underflow.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from unskew.aggregation import blocks
from unskew.aggregation.combine import sum_of_rows

RELATIVE_ROUNDING = 1e-13
"""Squared distances up to this share of the squared norms are rounding errors and set to 0."""

SMALLEST_NORM = 1e-12
"""Float32 can represent the squares of norms above this."""

LARGEST_POWER = 125
"""Float32 can represent powers of two up to this exponent, and their inverses."""

LANES = 8
"""The number of partial sums over blocks that are computed in parallel."""

_FEWEST_ROWS = 8
"""Rows are short if at least this many fit into one block."""

STRIP = 64
"""The minimum number of rows per matrix product."""

Deviate = Callable[[Tensor, Tensor], Tensor]
"""A function of a block and of memory of its shape, which it fills with the block minus a centre
that has one value per column."""

RowNorm = Callable[[Tensor], Tensor]
"""Maps deviations, which it may modify, to a norm or squared norm of each row."""


def distances_to_mean(rows: Tensor, weights: Tensor, norm: int) -> Tensor:
    """Return each row's l1 or l2 distance to the weighted mean; weights have the rows' dtype.

    For l1 and short rows, the whole mean is computed first and groups of rows are compared with
    it, because blocks of columns of many short rows would be many small pieces of memory. For l2
    this would lose precision, since torch adds up the squares of a row sequentially.
    """
    rows = rows.detach()
    if norm == 2 or not 0 < rows.shape[1] <= blocks.BLOCK // _FEWEST_ROWS:
        return distances(rows, _from_mean(weights), norm)
    center = sum_of_rows(rows, weights)
    return _summed_distances(norm, lambda row_norm: _on_rows(rows, center, row_norm))


def distances(rows: Tensor, deviate: Deviate, norm: int) -> Tensor:
    """Return each row's l1 or l2 distance to a centre that is computed column by column.

    The whole centre is never stored: a single pass over the memory computes both.
    """
    return _summed_distances(norm, lambda row_norm: _on_columns(rows.detach(), deviate, row_norm))


def from_center(center: Callable[[Tensor, Tensor], Tensor]) -> Deviate:
    """Return a function for deviations from the centre that ``center`` computes for a block."""

    def deviate(block: Tensor, memory: Tensor) -> Tensor:
        return torch.sub(block, center(block, memory), out=memory)

    return deviate


def _from_mean(weights: Tensor) -> Deviate:
    """Return a function for deviations from the weighted mean.

    It copies the block first, so that the following operations find contiguous rows in the cache.
    """

    def deviate(block: Tensor, memory: Tensor) -> Tensor:
        rows = memory.copy_(block)
        return rows.sub_(torch.mv(rows.T, weights))

    return deviate


def _summed_distances(norm: int, sums: Callable[[RowNorm], Tensor]) -> Tensor:
    """Return the distances, given a function that sums a norm of the deviations per row."""
    if norm == 2:
        return sums(lambda deviation: row_norms(deviation).square()).sqrt()
    total = sums(lambda deviation: deviation.abs_().sum(1))
    if bool(total.isfinite().all()):
        return total
    return sums(lambda deviation: deviation.abs_().sum(1, dtype=torch.float64))


def _on_rows(rows: Tensor, center: Tensor, row_norm: RowNorm) -> Tensor:
    """Return the norm of each row's deviation from a centre, for groups of rows."""
    height = blocks.BLOCK // rows.shape[1]
    memory = rows.new_empty(min(height, len(rows)), rows.shape[1])
    found = [
        row_norm(torch.sub(part, center, out=memory[: len(part)])).double()
        for part in torch.split(rows, height)
    ]
    return torch.cat(found)


def _on_columns(rows: Tensor, deviate: Deviate, row_norm: RowNorm) -> Tensor:
    """Return the norm of each row's deviation, summed over blocks of columns."""

    def work(block: Tensor, memory: Tensor, _: slice) -> Tensor:
        return row_norm(deviate(block, memory))

    total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    for part in blocks.on_blocks(rows, work):
        total += part
    return total


def pairwise_squared_distances(rows: Tensor) -> Tensor:
    """Return all squared l2 distances between rows, from their inner products.

    In float64 products of float32 numbers are exact and their sums nearly so. Rows are not centred
    first, so an extreme row affects only its own distances. A non-finite row is infinitely far
    from all others.
    """
    products = sum_of_products(rows, torch.float64, lambda block, memory: [memory.copy_(block)])
    norms = products.diagonal()
    scale = norms[:, None] + norms[None, :]
    squared = scale - 2 * products
    squared = torch.where(squared <= RELATIVE_ROUNDING * scale, 0.0, squared).nan_to_num_(
        nan=torch.inf
    )
    return squared.fill_diagonal_(0.0)


def sum_of_products(
    rows: Tensor, dtype: torch.dtype, matrices: Callable[[Tensor, Tensor], Iterable[Tensor]]
) -> Tensor:
    """Return the sum of ``m @ m.T`` over the matrices that ``matrices`` makes of column blocks.

    It writes them into reused memory of the block's shape and of ``dtype``. Blocks are assigned
    to a fixed number of partial sums, so the result does not depend on the number of threads.
    """
    slices = list(blocks.column_blocks(*rows.shape))
    lanes = LANES if len(slices) > LANES else 1

    def partial_sum(first: int) -> Tensor:
        total = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
        memory = rows.new_empty(len(rows), slices[0].stop if slices else 0, dtype=dtype)
        for columns in slices[first::lanes]:
            for matrix in matrices(rows[:, columns], memory[:, : columns.stop - columns.start]):
                _add_product(total, matrix)
        return total

    total, *others = blocks.in_threads(partial_sum, range(lanes), rows)
    for other in others:
        total += other
    return total.tril_().add_(total.tril(-1).T)


def _add_product(total: Tensor, matrix: Tensor) -> None:
    """Add a matrix times its transpose, in strips that skip most of the upper triangle."""
    height = max(STRIP, -(-len(matrix) // 4))
    for start in range(0, len(matrix), height):
        stop = start + height
        total[start:stop, :stop] += matrix[start:stop] @ matrix[:stop].T


def row_norms(rows: Tensor) -> Tensor:
    """Return each row's l2 norm in float64.

    Rows whose squares float32 cannot represent are first divided by powers of two. This is exact,
    so scaling all models by a power of two scales the norms exactly.
    """
    found: Tensor = torch.linalg.vector_norm(rows, dim=1)
    if bool((found.isfinite() & (found > SMALLEST_NORM)).all()):
        return found.double()
    scale = power_of_two(rows.abs().amax(1, keepdim=True))
    found = torch.linalg.vector_norm(rows / scale, dim=1)
    return found.double() * scale.squeeze(1)


def power_of_two(values: Tensor) -> Tensor:
    """Return the smallest power of two above each positive value; 1 for zero."""
    powers = torch.frexp(values).exponent.clamp(-LARGEST_POWER, LARGEST_POWER)
    return torch.ldexp(torch.ones_like(values), powers)
