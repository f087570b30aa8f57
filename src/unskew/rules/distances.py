"""Distances between models, on the trainable coordinates alone.

Rows are float32 and may be of any scale, so squares are taken in float64.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from unskew.rules.blocks import column_blocks

SAME = 1e-13
"""Squared distances below this share of the squared norms are rounding, and count as none."""


def distances(rows: Tensor, center: Callable[[Tensor], Tensor], norm: int) -> Tensor:
    """Return each row's l1 or l2 distance to a centre that is computed column by column.

    The centre is never held as a whole: one pass over the memory serves both.
    """
    total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    for columns in column_blocks(*rows.shape):
        block = rows[:, columns]
        deviation = block - center(block)
        if norm == 1:
            total += deviation.abs_().sum(1, dtype=torch.float64)
        else:
            total += torch.linalg.vector_norm(deviation, dim=1, dtype=torch.float64).square()
    return total if norm == 1 else total.sqrt()


def weighted_center(weights: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the centre that is the rows' weighted mean."""

    def center(block: Tensor) -> Tensor:
        return weights.to(block) @ block

    return center


def squared_distances(rows: Tensor) -> Tensor:
    """Return all squared l2 distances between rows, from their inner products.

    In float64 the products are exact, and a row that is absurdly far away spoils no distance but
    its own, as it would if rows were centred first.
    """
    products = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for columns in column_blocks(*rows.shape):
        block = rows[:, columns].double()
        products += block @ block.T
    norms = products.diagonal()
    scale = norms[:, None] + norms[None, :]
    squared = scale - products - products.T
    return torch.where(squared > SAME * scale, squared, 0.0).fill_diagonal_(0.0)
