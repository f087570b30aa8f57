"""The mean of the middle values of each column, without sorting more than necessary.

A small number of rows is passed through a network of comparators (Batcher, 1968, "Sorting networks
and their applications"): each puts the smaller values of two rows into one row and the larger into
the other, for all columns of a block at once. Larger numbers of rows are sorted.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

MAX_NETWORK_ROWS = 40
"""With more rows than this, sorting is faster than the network."""


def median_of_columns(block: Tensor, scratch: Tensor) -> Tensor:
    """Return the median of each column; for an even number of rows, the mean of the middle two."""
    return middle_mean(block, scratch, (len(block) - 1) // 2)


def middle_mean(block: Tensor, scratch: Tensor, trim: int) -> Tensor:
    """Return the mean of each column without its ``trim`` smallest and largest values."""
    clients = len(block)
    if clients > MAX_NETWORK_ROWS:
        return sorted_columns(block, scratch)[trim : clients - trim].mean(0)
    rows: list[Tensor] = list(scratch.copy_(block))
    spare = torch.empty_like(rows[0])
    for first, second, smaller, larger in middle_network(clients, trim):
        one, other = rows[first], rows[second]
        if smaller:
            rows[first] = torch.minimum(one, other, out=spare)
            spare = one
        if larger:
            torch.maximum(one, other, out=other)
    total = rows[trim]
    for row in rows[trim + 1 : clients - trim]:
        total += row
    return total / (clients - 2 * trim)


def sorted_columns(block: Tensor, scratch: Tensor) -> Tensor:
    """Sort each column; numpy's vectorised sort is several times faster than torch's.

    It sorts contiguous numbers. Transposing a contiguous matrix is faster than transposing a slice
    of columns, hence the first copy.
    """
    if block.device.type != "cpu":
        return block.sort(dim=0).values
    columns = scratch.copy_(block).T.contiguous()
    columns.numpy().sort(axis=1)
    return columns.T


class Comparator(NamedTuple):
    """Two rows to compare, and whether the smaller and the larger values are used later."""

    first: int
    second: int
    smaller: bool
    larger: bool


@lru_cache(maxsize=64)
def middle_network(rows: int, trim: int) -> tuple[Comparator, ...]:
    """Return comparators that separate the ``trim`` smallest and largest rows from the rest.

    The full sorting network is processed from its end. The order within the middle values does not
    matter, nor does the order of dropped values or of two values that a later comparator compares;
    a comparator that determines nothing else is omitted.
    """
    dropped = {"smallest", "largest"}
    goals: list[str | int] = [*["smallest"] * trim, *["middle"] * (rows - 2 * trim)]
    goals += ["largest"] * trim
    needed: list[Comparator] = []
    for step, (first, second) in enumerate(reversed(list(_sorting_network(rows)))):
        if goals[first] != goals[second]:
            used = goals[first] not in dropped, goals[second] not in dropped
            needed.append(Comparator(first, second, *used))
            goals[first] = goals[second] = step
    return tuple(reversed(needed))


def _sorting_network(rows: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs of Batcher's odd-even merge sort, which works for any number of rows."""
    run = 1
    while run < rows:
        stride = run
        while stride:
            for start in range(stride % run, rows - stride, 2 * stride):
                for first in range(start, min(start + stride, rows - stride)):
                    if first // (2 * run) == (first + stride) // (2 * run):
                        yield first, first + stride
            stride //= 2
        run *= 2
