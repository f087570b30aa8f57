"""Feature skew: the share of the features' variance that lies between clients."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from unskew.data.columns import Columns

BLOCK = 4096
"""The number of samples processed at a time."""

BUCKETS = 512
"""The number of buckets that the words of a text are counted in."""

Floats = NDArray[np.float64]


def feature_skews(columns: "Columns") -> tuple[float | None, float | None]:
    """Return the share of variance between clients, over all samples and within classes.

    Each is eta squared, the sum of n_k |mean_k - mean|^2 divided by the sum of |x - mean|^2, minus
    the part that sampling alone causes (epsilon squared), and at least zero. It is None if it is
    undefined: for fewer than two clients, one sample per client, or features without variance.
    """
    if columns.samples == 0:
        return None, None
    owners = columns.owners()
    labels = columns.y.astype(np.int64)
    order = np.lexsort((labels, owners))
    cells = owners[order] * (int(labels.max()) + 1) + labels[order]
    starts = np.flatnonzero(np.diff(cells, prepend=-1))
    single_kind = np.zeros(len(order), np.int64)
    by_client = np.asarray(columns.offsets[:-1][columns.sizes > 0])
    return (
        _between(columns.x, np.arange(len(order)), by_client, single_kind),
        _between(columns.x, order, starts, labels[order]),
    )


def _between(
    x: NDArray[Any], order: NDArray[np.int64], starts: NDArray[np.int64], kind: NDArray[np.int64]
) -> float | None:
    """Return the corrected share of variance between cells, each compared with cells of its kind.

    ``x[order]`` holds the cells one after another; each begins at one of ``starts``.
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
    between_freedom = len(starts) - np.count_nonzero(kinds)
    within_freedom = len(order) - len(starts)
    total = squares - common
    if between_freedom < 1 or within_freedom < 1 or total <= 1e-12 * max(squares, 1e-300):
        return None
    by_chance = between_freedom * (squares - explained) / within_freedom
    return float(np.clip((explained - common - by_chance) / total, 0, 1))


def _blocks(starts: NDArray[np.int64]) -> list[slice]:
    """Split the cells into runs that begin in the same block of samples."""
    edges = np.flatnonzero(np.diff(starts // BLOCK, prepend=-1))
    return [slice(int(a), int(b)) for a, b in zip(edges, [*edges[1:], len(starts)], strict=True)]


def as_vectors(x: NDArray[Any]) -> Floats:
    """Return one feature vector per sample: pixels unchanged, tokens as word counts.

    Tokens are counted in a fixed number of buckets; token 0 is padding and is not counted.
    """
    flat = x.reshape(len(x), -1)
    if x.dtype != np.int32:
        return flat.astype(np.float64)
    cells = np.arange(len(flat))[:, None] * BUCKETS + flat % BUCKETS
    counts = np.bincount(cells[flat != 0], minlength=len(flat) * BUCKETS)
    return counts.reshape(len(flat), BUCKETS).astype(np.float64)
