"""Binning of maps: neighbouring rows are averaged."""

import warnings

import numpy as np
from numpy.typing import NDArray


def bin_starts(length: int, max_bins: int) -> list[int]:
    """Return the first indices of at most ``max_bins`` bins."""
    if length <= max_bins:
        return list(range(length))
    return [i * length // max_bins for i in range(max_bins)]


def mean_of_bins(matrix: NDArray[np.float64], starts: list[int]) -> NDArray[np.float64]:
    """Return the mean row of each bin, ignoring NaN."""
    if len(starts) == len(matrix):
        return matrix
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a bin in which no client participated
        bins = np.split(matrix, starts[1:])
        return np.array([np.nanmean(rows, axis=0) for rows in bins])


def bin_names(starts: list[int], length: int, first: int) -> list[str]:
    """Return the names of the bins: one number, or the first and the last."""
    ends = [*starts[1:], length]
    return [
        str(a + first) if b == a + 1 else f"{a + first} to {b - 1 + first}"
        for a, b in zip(starts, ends, strict=True)
    ]
