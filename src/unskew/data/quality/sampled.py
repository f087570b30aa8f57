"""Statistics of features per client, from at most a million values."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.data.columns import Columns

MAX_VALUES = 1_000_000
"""How many values are read; of larger data, an equal number of samples of each client."""

_MAX_FEATURES = 2_000
"""Of wider tables, the first columns are checked."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SampledFeatures:
    """Features of some samples of each client, ordered by client.

    ``values`` has one column per feature of a table. The pixels of images are alike, so for images
    it has a single column, with one pixel per row.
    """

    values: Floats
    clients: NDArray[np.int64]
    """The clients that have samples."""
    offsets: NDArray[np.int64]
    """The rows ``offsets[i]:offsets[i + 1]`` are those of ``clients[i]``."""

    @staticmethod
    def of(columns: Columns, max_values: int = MAX_VALUES) -> "SampledFeatures":
        """Read features of each client, evenly spaced among its samples."""
        width = int(np.prod(columns.x.shape[1:]))
        clients = np.flatnonzero(columns.sizes)
        read = min(width, _MAX_FEATURES) if columns.x.ndim == 2 else width
        budget = max(1, max_values // max(1, read))
        if len(clients) > budget:
            clients = clients[:: -(-len(clients) // budget)]
        each = max(1, budget // max(1, len(clients)))
        sizes = columns.sizes[clients]
        strides = -(-sizes // each)
        counts = -(-sizes // strides)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        rows = np.repeat(columns.offsets[clients], counts) + place * np.repeat(strides, counts)
        values = columns.x[rows]
        if values.ndim == 2:
            return SampledFeatures(values[:, :read].astype(np.float64), clients, offsets)
        pixels = values.astype(np.float64).reshape(-1, 1)
        return SampledFeatures(pixels, clients, offsets * width)

    def client(self, index: int) -> Floats:
        """Return the rows of ``clients[index]``."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def moments(self) -> tuple[Floats, Floats]:
        """Return the mean and the standard deviation of each feature per client."""
        center = self.values.mean(axis=0)  # without it, the squares of large values lose digits
        shifted = self.values - center
        counts = np.diff(self.offsets)[:, None]
        means = np.add.reduceat(shifted, self.offsets[:-1], axis=0) / counts
        squares = np.add.reduceat(shifted**2, self.offsets[:-1], axis=0) / counts
        return means + center, np.sqrt(np.maximum(0, squares - means**2))
