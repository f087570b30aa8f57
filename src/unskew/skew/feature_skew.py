"""How far clients' features lie apart: the share of the variance that lies between clients."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from unskew.data.columns import Columns

BLOCK = 4096
"""Samples looked at in one go."""

BUCKETS = 512
"""Columns that the words of a text are counted in."""

Floats = NDArray[np.float64]


def feature_skews(columns: "Columns") -> tuple[float | None, float | None]:
    """Return the share of variance between clients, over all samples and among those of a class.

    Each is eta squared, sum n_k |mean_k - mean|^2 over the sum of |x - mean|^2, with the part
    that sampling alone causes taken off (epsilon squared), and not below zero. None means that
    it cannot be told: fewer than two clients, one sample each, or features without variance.
    """
    if columns.samples == 0:
        return None, None
    owners = columns.owners()
    labels = columns.y.astype(np.int64)
    order = np.lexsort((labels, owners))
    cells = owners[order] * (int(labels.max()) + 1) + labels[order]
    starts = np.flatnonzero(np.diff(cells, prepend=-1))
    everybody = np.zeros(len(order), np.int64)
    by_client = np.asarray(columns.offsets[:-1][columns.sizes > 0])
    return (
        _between(columns.x, np.arange(len(order)), by_client, everybody),
        _between(columns.x, order, starts, labels[order]),
    )


def _between(
    x: NDArray[Any], order: NDArray[np.int64], starts: NDArray[np.int64], kind: NDArray[np.int64]
) -> float | None:
    """Return the corrected share of variance between cells, each compared with its own kind.

    ``x[order]`` holds the cells one after the other, each beginning at one of ``starts``.
    """
    sizes = np.diff(starts, append=len(order))
    of_kind = kind[starts]
    squares = explained = 0.0
    totals: Floats | None = None
    for cells in _blocks(starts):
        rows = slice(starts[cells.start], starts[cells.stop - 1] + sizes[cells.stop - 1])
        values = as_vectors(x[order[rows]])
        sums = np.add.reduceat(values, starts[cells] - rows.start, axis=0)
        squares += float(np.vdot(values, values))
        explained += float(((sums**2).sum(axis=1) / sizes[cells]).sum())
        totals = np.zeros((int(kind.max()) + 1, sums.shape[1])) if totals is None else totals
        np.add.at(totals, of_kind[cells], sums)
    kinds = np.bincount(kind)
    assert totals is not None
    common = float(((totals**2).sum(axis=1)[kinds > 0] / kinds[kinds > 0]).sum())
    compared = len(starts) - np.count_nonzero(kinds)
    free = len(order) - len(starts)
    total = squares - common
    if compared < 1 or free < 1 or total <= 1e-12 * max(squares, 1e-300):
        return None
    by_chance = compared * (squares - explained) / free
    return float(np.clip((explained - common - by_chance) / total, 0, 1))


def _blocks(starts: NDArray[np.int64]) -> list[slice]:
    """Cut the cells into runs that begin in the same block of samples."""
    edges = np.flatnonzero(np.diff(starts // BLOCK, prepend=-1))
    return [slice(int(a), int(b)) for a, b in zip(edges, [*edges[1:], len(starts)], strict=True)]


def as_vectors(x: NDArray[Any]) -> Floats:
    """Return one vector of features a sample: pixels as they are, tokens as counts of words.

    Tokens are counted in a fixed number of buckets; token 0 is padding and does not count.
    """
    flat = x.reshape(len(x), -1)
    if x.dtype != np.int32:
        return flat.astype(np.float64)
    cells = np.arange(len(flat))[:, None] * BUCKETS + flat % BUCKETS
    counts = np.bincount(cells[flat != 0], minlength=len(flat) * BUCKETS)
    return counts.reshape(len(flat), BUCKETS).astype(np.float64)
