"""Walk over a wide matrix in blocks of columns that fit into the processor's cache."""

from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK = 1 << 18
"""Numbers in a block: 1 MB of float32, so that several operations find it in the cache."""


def column_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices that cover the columns, each of about :data:`BLOCK` numbers."""
    width = max(1, BLOCK // max(1, rows))
    for start in range(0, columns, width):
        yield slice(start, min(start + width, columns))


def take_columns(rows: Tensor, places: Tensor) -> Tensor:
    """Return ``rows[:, places]``, row by row: half the time of indexing the matrix."""
    return torch.stack([row.index_select(0, places) for row in rows])
