"""NaN and infinite values, counted by column and client."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from unskew.data.columns import Array, Columns
from unskew.data.quality.findings import Finding
from unskew.data.quality.naming import client_name, column_name, listed

if TYPE_CHECKING:
    from unskew.data.federation import Federation

_BLOCK_BYTES = 2**24


def finite_findings(federation: "Federation") -> Iterator[Finding]:
    """Yield an error for each part of the federation that has values that are not finite."""
    for part in ("train", "test", "common"):
        columns: Columns = getattr(federation, part)
        for name, values in (("x", columns.x), ("y", columns.y)):
            if not is_finite(values):
                yield _finding(federation, part, name, columns)


def is_finite(x: Array) -> bool:
    """Return whether all values are finite numbers, reading a mapped file block by block."""
    return x.dtype.kind != "f" or all(_block_is_finite(block) for _, block in _blocks(x))


def _block_is_finite(block: Array) -> bool:
    # A sum is finite only if all its terms are, and much faster than a test of each. An infinite
    # sum of finite terms is possible, so it decides nothing.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(block.sum(dtype=np.float32)):
            return True
    return bool(np.isfinite(block).all())


def _finding(federation: "Federation", part: str, name: str, columns: Columns) -> Finding:
    values = columns.x if name == "x" else columns.y
    kinds: Counter[str] = Counter()
    features: Counter[int] = Counter()
    rows: list[int] = []
    for start, block in _blocks(values):
        flat = block.reshape(len(block), -1)
        kinds["NaN"] += int(np.isnan(flat).sum())
        kinds["infinite"] += int(np.isinf(flat).sum())
        row, feature = np.nonzero(~np.isfinite(flat))
        rows += (row + start).tolist()
        features.update(feature.tolist())
    counts = " and ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
    where = []
    if name == "x" and len(federation.shape) == 1:
        named = (f"{column_name(federation, c)} ({n:,})" for c, n in features.most_common())
        where.append(listed(named))
    if part != "common":
        owners = np.searchsorted(columns.offsets, rows, side="right") - 1
        clients = Counter(owners.tolist())
        named = (f"{client_name(federation, k)} ({n:,})" for k, n in clients.most_common())
        where.append(listed(named))
    places = f": {'; '.join(where)}" if where else ""
    return Finding(
        "error",
        f"{part} {name}",
        f"has values that are not finite numbers ({counts} of {values.size:,}){places}",
        "replace them or remove their samples",
    )


def _blocks(x: Array) -> Iterator[tuple[int, Array]]:
    """Yield blocks of rows, each with the number of its first row."""
    rows = max(1, _BLOCK_BYTES // max(1, x[:1].nbytes))
    starts: Sequence[int] = range(0, len(x) + rows, rows)
    for start, end in pairwise(starts):
        yield start, x[start:end]
