"""Aggregation rules on the sorted values of each coordinate: median and trimmed mean.

Yin, Chen, Ramchandran and Bartlett (2018), "Byzantine-robust distributed learning: towards
optimal statistical rates". Both treat floating buffers like parameters.
"""

import math

import torch
from torch import Tensor

from unskew.aggregation import checks
from unskew.aggregation.combine import by_coordinate
from unskew.aggregation.rule import Rule
from unskew.aggregation.selection import median_of_columns, middle_mean
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics


def coordinate_median() -> Rule:
    """Take the median of each coordinate; for an even number of values, the middle two's mean."""

    def apply(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        return by_coordinate(uploads.stack, uploads.layout, median_of_columns), {}

    return Rule("coordinate_median", apply)


def trimmed_mean(beta: float) -> Rule:
    """Drop the floor(beta n) smallest and largest values per coordinate and average the rest."""
    checks.between("beta", beta, 0.0, 0.5, below=True)

    def apply(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        clients = len(uploads)
        # Without the small offset 0.29 x 100 would be 28.999... and round down to 28.
        trim = min(math.floor(beta * clients + 1e-9), (clients - 1) // 2)

        def rule(block: Tensor, scratch: Tensor) -> Tensor:
            return middle_mean(block, scratch, trim)

        return by_coordinate(uploads.stack, uploads.layout, rule), {"trimmed": torch.tensor(trim)}

    return Rule("trimmed_mean", apply)
