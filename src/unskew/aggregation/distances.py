"""Distances between models, on the trainable coordinates alone.

Rows are float32 and may be of any scale, so no square and no sum may overflow or vanish.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from unskew.aggregation import blocks
from unskew.aggregation.combine import sum_of_rows

SAME = 1e-13
"""Squared distances below this share of the squared norms are rounding, and count as none."""

SHORTEST = 1e-12
"""Lengths above this have squares that float32 can hold."""

LARGEST_POWER = 125
"""Powers of two up to this, and their inverses, are float32."""

LANES = 8
"""Sums over blocks that are computed side by side."""

_FEWEST_ROWS = 8
"""Rows are short if so many are no larger than a block."""

STRIP = 64
"""The least number of rows whose products are computed at once."""

Deviate = Callable[[Tensor, Tensor], Tensor]
"""A function of a block and of memory of its shape, which it fills with the block less a centre
that has one value a column."""

Measure = Callable[[Tensor], Tensor]
"""A function of deviations, which it may change, to one number a row."""


def distances_to_mean(rows: Tensor, weights: Tensor, norm: int) -> Tensor:
    """Return each row's l1 or l2 distance to the mean of all by weights of the rows' type.

    For l1 the mean of short rows is held as a whole, and some rows at a time are compared with it:
    of many short rows, blocks of columns would be as many small pieces of memory. For l2 it would
    cost digits, since torch adds the squares of a row up one after the other.
    """
    rows = rows.detach()
    if norm == 2 or not 0 < rows.shape[1] <= blocks.BLOCK // _FEWEST_ROWS:
        return distances(rows, _from_mean(weights), norm)
    center = sum_of_rows(rows, weights)
    return _measured(norm, lambda measure: _on_rows(rows, center, measure))


def distances(rows: Tensor, deviate: Deviate, norm: int) -> Tensor:
    """Return each row's l1 or l2 distance to a centre that is computed column by column.

    The centre is never held as a whole: one pass over the memory serves both.
    """
    return _measured(norm, lambda measure: _on_columns(rows.detach(), deviate, measure))


def from_center(center: Callable[[Tensor, Tensor], Tensor]) -> Deviate:
    """Deviate from what a function of a block, and of memory of its shape, gives for columns."""

    def deviate(block: Tensor, memory: Tensor) -> Tensor:
        return torch.sub(block, center(block, memory), out=memory)

    return deviate


def _from_mean(weights: Tensor) -> Deviate:
    """Deviate from the mean by weights.

    The block is copied first: what follows then finds its rows side by side in the cache.
    """

    def deviate(block: Tensor, memory: Tensor) -> Tensor:
        rows = memory.copy_(block)
        return rows.sub_(torch.mv(rows.T, weights))

    return deviate


def _measured(norm: int, sums: Callable[[Measure], Tensor]) -> Tensor:
    """Return the distances, given what adds a measure of the deviations up."""
    if norm == 2:
        return sums(lambda deviation: lengths(deviation).square()).sqrt()
    total = sums(lambda deviation: deviation.abs_().sum(1))
    if bool(total.isfinite().all()):
        return total
    return sums(lambda deviation: deviation.abs_().sum(1, dtype=torch.float64))


def _on_rows(rows: Tensor, center: Tensor, measure: Measure) -> Tensor:
    """Return what is measured of each row's deviation from a centre, some rows at a time."""
    height = blocks.BLOCK // rows.shape[1]
    memory = rows.new_empty(min(height, len(rows)), rows.shape[1])
    found = [
        measure(torch.sub(part, center, out=memory[: len(part)])).double()
        for part in torch.split(rows, height)
    ]
    return torch.cat(found)


def _on_columns(rows: Tensor, deviate: Deviate, measure: Measure) -> Tensor:
    """Return the sum of what is measured of each row's deviation, block by block."""

    def work(block: Tensor, memory: Tensor, _: slice) -> Tensor:
        return measure(deviate(block, memory))

    total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    for part in blocks.on_blocks(rows, work):
        total += part
    return total


def squared_distances(rows: Tensor) -> Tensor:
    """Return all squared l2 distances between rows, from their inner products.

    In float64 products of float32 are exact and their sums nearly so, and a row that is absurdly
    far away spoils no distance but its own, as it would if rows were centred first. A row that is
    not finite is infinitely far from all others.
    """
    products = sum_of_products(rows, torch.float64, lambda block, memory: [memory.copy_(block)])
    norms = products.diagonal()
    scale = norms[:, None] + norms[None, :]
    squared = scale - 2 * products
    squared = torch.where(squared <= SAME * scale, 0.0, squared).nan_to_num_(nan=torch.inf)
    return squared.fill_diagonal_(0.0)


def sum_of_products(
    rows: Tensor, dtype: torch.dtype, matrices: Callable[[Tensor, Tensor], Iterable[Tensor]]
) -> Tensor:
    """Return the sum of ``m @ m.T`` over the matrices that blocks of columns are turned into.

    They are made in memory of a block's shape and of this type, which is used again. Blocks are
    dealt out to a fixed number of sums, so that the threads do not show.
    """
    places = list(blocks.column_blocks(*rows.shape))
    lanes = LANES if len(places) > LANES else 1

    def lane(first: int) -> Tensor:
        total = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
        memory = rows.new_empty(len(rows), places[0].stop if places else 0, dtype=dtype)
        for columns in places[first::lanes]:
            for matrix in matrices(rows[:, columns], memory[:, : columns.stop - columns.start]):
                _add_product(total, matrix)
        return total

    total, *others = blocks.in_threads(lane, range(lanes), rows)
    for other in others:
        total += other
    return total.tril_().add_(total.tril(-1).T)


def _add_product(total: Tensor, matrix: Tensor) -> None:
    """Add a matrix times its transpose, in strips that leave out most of the upper triangle."""
    height = max(STRIP, -(-len(matrix) // 4))
    for start in range(0, len(matrix), height):
        stop = start + height
        total[start:stop, :stop] += matrix[start:stop] @ matrix[:stop].T


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
