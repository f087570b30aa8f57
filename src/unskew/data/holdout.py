"""Which of a client's samples are held out as its local test set."""

import numpy as np
from numpy.typing import NDArray

from unskew.data.columns import Columns
from unskew.utils.rng import generator


def held_out_columns(samples: Columns, share: float, seed: int) -> tuple[Columns, Columns]:
    """Return each client's samples without a random share of them, and that share.

    The number of held-out samples is rounded down.
    """
    sizes, owners = samples.sizes, samples.owners()
    # Keys with the client in the high bits and random low bits shuffle all clients in one sort;
    # the first samples of each client are its test set. Rounding to nine digits keeps 0.29 of
    # 100 from becoming 28.
    bits = 62 - len(samples).bit_length()
    keys = generator(seed, "holdout").integers(0, 1 << bits, len(owners)) | (owners << bits)
    place = np.arange(len(owners)) - np.repeat(samples.offsets[:-1], sizes)
    is_test = np.empty(len(owners), bool)
    is_test[np.argsort(keys, kind="stable")] = place < np.floor(np.round(sizes * share, 9))[owners]
    return _chosen(samples, ~is_test, owners), _chosen(samples, is_test, owners)


def _chosen(samples: Columns, chosen: NDArray[np.bool_], owners: NDArray[np.int64]) -> Columns:
    rows = np.flatnonzero(chosen)
    x, y = np.take(samples.x, rows, axis=0), np.take(samples.y, rows)
    return Columns.grouped(x, y, owners[rows], len(samples))
