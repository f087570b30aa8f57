"""Fewer cells of a map: neighbours are drawn as one."""

import warnings

import numpy as np
from numpy.typing import NDArray

from unskew.report.charts.chart import thinned


def bin_starts(length: int, most: int) -> list[int]:
    """Return where at most so many bins of a length begin."""
    return thinned(length, most) if length <= most else [i * length // most for i in range(most)]


def mean_of_bins(matrix: NDArray[np.float64], starts: list[int]) -> NDArray[np.float64]:
    """Return the mean row of each bin; what is unknown does not count."""
    if len(starts) == len(matrix):
        return matrix
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a bin in which nobody took part
        bins = np.split(matrix, starts[1:])
        return np.array([np.nanmean(rows, axis=0) for rows in bins])


def bin_names(starts: list[int], length: int, first: int) -> list[str]:
    """Name the bins: one number, or the first and the last of it."""
    ends = [*starts[1:], length]
    return [
        str(a + first) if b == a + 1 else f"{a + first} to {b - 1 + first}"
        for a, b in zip(starts, ends, strict=True)
    ]
