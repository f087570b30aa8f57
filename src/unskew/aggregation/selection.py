"""The mean of the middle values of each column, without sorting more than it takes.

Few rows go through a network of comparators (Batcher, 1968, "Sorting networks and their
applications"): each puts the smaller values of two rows into one row and the larger into the
other, for all columns of a block at once. Many rows are sorted.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

FEW = 40
"""With more rows than this, sorting is quicker than the network."""


def median_of_columns(block: Tensor, scratch: Tensor) -> Tensor:
    """Return the median of each column; of an even number of rows, the middle of the two."""
    return middle_mean(block, scratch, (len(block) - 1) // 2)


def middle_mean(block: Tensor, scratch: Tensor, cut: int) -> Tensor:
    """Return the mean of each column without its ``cut`` smallest and largest values."""
    clients = len(block)
    if clients > FEW:
        return sorted_columns(block, scratch)[cut : clients - cut].mean(0)
    rows: list[Tensor] = list(scratch.copy_(block))
    spare = torch.empty_like(rows[0])
    for first, second, smaller, larger in middle_network(clients, cut):
        one, other = rows[first], rows[second]
        if smaller:
            rows[first] = torch.minimum(one, other, out=spare)
            spare = one
        if larger:
            torch.maximum(one, other, out=other)
    total = rows[cut]
    for row in rows[cut + 1 : clients - cut]:
        total += row
    return total / (clients - 2 * cut)


def sorted_columns(block: Tensor, scratch: Tensor) -> Tensor:
    """Sort each column; numpy's vectorised sort takes a fraction of the time torch's takes.

    It sorts numbers that lie side by side. To turn a whole matrix is quicker than to turn a part
    of its columns, hence the first copy.
    """
    if block.device.type != "cpu":
        return block.sort(dim=0).values
    columns = scratch.copy_(block).T.contiguous()
    columns.numpy().sort(axis=1)
    return columns.T


class Comparator(NamedTuple):
    """Two rows to compare, and whether anyone looks at the smaller and at the larger values."""

    first: int
    second: int
    smaller: bool
    larger: bool


@lru_cache(maxsize=64)
def middle_network(rows: int, cut: int) -> tuple[Comparator, ...]:
    """Return the comparators that part the ``cut`` smallest and largest of some rows from the rest.

    The network that sorts all rows is read from its end. In what order the rest lies does not
    matter, nor does the order of what is dropped, nor that of two values which a later comparator
    compares; a comparator that decides nothing else is left out.
    """
    dropped = {"smallest", "largest"}
    goals: list[str | int] = [*["smallest"] * cut, *["middle"] * (rows - 2 * cut)]
    goals += ["largest"] * cut
    needed: list[Comparator] = []
    for place, (first, second) in enumerate(reversed(list(_sorting_network(rows)))):
        if goals[first] != goals[second]:
            looked_at = goals[first] not in dropped, goals[second] not in dropped
            needed.append(Comparator(first, second, *looked_at))
            goals[first] = goals[second] = place
    return tuple(reversed(needed))


def _sorting_network(rows: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs of Batcher's odd-even merge sort, which also sorts any number of rows."""
    run = 1
    while run < rows:
        reach = run
        while reach:
            for start in range(reach % run, rows - reach, 2 * reach):
                for first in range(start, min(start + reach, rows - reach)):
                    if first // (2 * run) == (first + reach) // (2 * run):
                        yield first, first + reach
            reach //= 2
        run *= 2
