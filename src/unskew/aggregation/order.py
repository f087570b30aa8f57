"""Rules on the ordered values of each coordinate: the median and the trimmed mean.

Yin, Chen, Ramchandran and Bartlett (2018), "Byzantine-robust distributed learning: towards
optimal statistical rates". Both treat floating buffers like parameters.
"""

import math

import torch
from torch import Tensor

from unskew.aggregation import checks
from unskew.aggregation.combine import by_coordinate
from unskew.aggregation.rule import Diagnostics, Rule
from unskew.aggregation.selection import median_of_columns, middle_mean
from unskew.aggregation.uploads import Uploads


def coordinate_median() -> Rule:
    """Take the median of each coordinate; of an even number of clients, the middle of the two."""

    def apply(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        return by_coordinate(uploads.stack, uploads.layout, median_of_columns), {}

    return Rule("coordinate_median", apply)


def trimmed_mean(beta: float) -> Rule:
    """Drop the floor(beta n) smallest and largest values of each coordinate, average the rest."""
    checks.between("beta", beta, 0.0, 0.5, below=True)

    def apply(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        clients = len(uploads)
        # Without the small shift 0.29 x 100 would be 28.999... and lose a client.
        cut = min(math.floor(beta * clients + 1e-9), (clients - 1) // 2)

        def rule(block: Tensor, scratch: Tensor) -> Tensor:
            return middle_mean(block, scratch, cut)

        return by_coordinate(uploads.stack, uploads.layout, rule), {"trimmed": torch.tensor(cut)}

    return Rule("trimmed_mean", apply)
