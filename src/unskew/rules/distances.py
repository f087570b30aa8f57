"""Distances between models, on the trainable coordinates alone.

Rows are float32 and may be of any scale, so no square and no sum may overflow or vanish.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from unskew.rules.blocks import column_blocks, in_threads, on_blocks

SAME = 1e-13
"""Squared distances below this share of the squared norms are rounding, and count as none."""

SHORTEST = 1e-12
"""Lengths above this have squares that float32 can hold."""

LARGEST_POWER = 125
"""Powers of two up to this, and their inverses, are float32."""

LANES = 8
"""Sums over blocks that are computed side by side."""

STRIP = 64
"""The least number of rows whose products are computed at once."""

Deviate = Callable[[Tensor, Tensor], Tensor]
"""A function of a block and of memory of its shape, which it fills with the block less a centre
that has one value a column."""


def distances(rows: Tensor, deviate: Deviate, norm: int) -> Tensor:
    """Return each row's l1 or l2 distance to a centre that is computed column by column.

    The centre is never held as a whole: one pass over the memory serves both.
    """
    if norm == 2:
        return _sums(rows, deviate, lambda deviation: lengths(deviation).square()).sqrt()
    total = _sums(rows, deviate, lambda deviation: deviation.abs_().sum(1))
    if bool(total.isfinite().all()):
        return total
    return _sums(rows, deviate, lambda deviation: deviation.abs_().sum(1, dtype=torch.float64))


def from_mean(weights: Tensor) -> Deviate:
    """Deviate from the rows' mean by weights of the rows' type.

    The block is copied first: what follows then finds its rows side by side in the cache.
    """

    def deviate(block: Tensor, memory: Tensor) -> Tensor:
        rows = memory.copy_(block)
        return rows.sub_(torch.mv(rows.T, weights))

    return deviate


def from_center(center: Callable[[Tensor, Tensor], Tensor]) -> Deviate:
    """Deviate from what a function of a block, and of memory of its shape, gives for columns."""

    def deviate(block: Tensor, memory: Tensor) -> Tensor:
        return torch.sub(block, center(block, memory), out=memory)

    return deviate


def squared_distances(rows: Tensor) -> Tensor:
    """Return all squared l2 distances between rows, from their inner products.

    In float64 the products are exact, and a row that is absurdly far away spoils no distance but
    its own, as it would if rows were centred first.
    """
    products = sum_of_products(rows, torch.float64, lambda block, memory: [memory.copy_(block)])
    norms = products.diagonal()
    scale = norms[:, None] + norms[None, :]
    squared = scale - 2 * products
    return torch.where(squared > SAME * scale, squared, 0.0).fill_diagonal_(0.0)


def sum_of_products(
    rows: Tensor, dtype: torch.dtype, matrices: Callable[[Tensor, Tensor], Iterable[Tensor]]
) -> Tensor:
    """Return the sum of ``m @ m.T`` over the matrices that blocks of columns are turned into.

    They are made in memory of a block's shape and of this type, which is used again. Blocks are
    dealt out to a fixed number of sums, so that the threads do not show.
    """
    blocks = list(column_blocks(*rows.shape))
    lanes = LANES if len(blocks) > LANES else 1

    def lane(first: int) -> Tensor:
        total = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
        memory = rows.new_empty(len(rows), blocks[0].stop if blocks else 0, dtype=dtype)
        for columns in blocks[first::lanes]:
            for matrix in matrices(rows[:, columns], memory[:, : columns.stop - columns.start]):
                _add_product(total, matrix)
        return total

    total, *others = in_threads(lane, range(lanes), rows)
    for other in others:
        total += other
    return total.tril_().add_(total.tril(-1).T)


def _add_product(total: Tensor, matrix: Tensor) -> None:
    """Add a matrix times its transpose, in strips that leave out most of the upper triangle."""
    height = max(STRIP, -(-len(matrix) // 4))
    for start in range(0, len(matrix), height):
        stop = start + height
        total[start:stop, :stop] += matrix[start:stop] @ matrix[:stop].T


def _sums(rows: Tensor, deviate: Deviate, measure: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the sum of what is measured of each row's deviation, block by block."""

    def work(block: Tensor, scratch: Tensor, _: slice) -> Tensor:
        return measure(deviate(block, scratch))

    total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    for part in on_blocks(rows, work):
        total += part
    return total


def lengths(rows: Tensor) -> Tensor:
    """Return each row's l2 norm in float64.

    Rows whose squares float32 cannot hold are divided by powers of two first. That changes no
    digit, so scaling all models by such a power changes nothing but the scale.
    """
    found: Tensor = torch.linalg.vector_norm(rows, dim=1)
    if bool((found.isfinite() & (found > SHORTEST)).all()):
        return found.double()
    scale = power_of_two(rows.abs().amax(1, keepdim=True))
    found = torch.linalg.vector_norm(rows / scale, dim=1)
    return found.double() * scale.squeeze(1)


def power_of_two(values: Tensor) -> Tensor:
    """Return the power of two next above each positive value; 1 for zero."""
    powers = torch.frexp(values).exponent.clamp(-LARGEST_POWER, LARGEST_POWER)
    return torch.ldexp(torch.ones_like(values), powers)
