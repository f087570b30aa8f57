"""Tables of clients: bounded in size, and read from the run's folder when they are asked for.

A table has one row per client, up to :data:`MAX_ROWS` clients. Beyond that it lists
:data:`LISTED` of them, and holds their number (``of``) and a summary of every column over all of
them: a run of 100,000 clients would otherwise write and keep megabytes per evaluation.
"""

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from unskew.errors import FolderError
from unskew.runs.json_files import parse_line

MAX_ROWS = 1_000
"""The largest number of clients of which a table has one row each: more than a chart can show."""

LISTED = 101
"""The number of clients in a larger table: one per percentile of what was measured."""

_QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}

ClientTable = dict[str, Any]
ColumnValues = Sequence[Any] | NDArray[Any]


def client_table(
    columns: Mapping[str, ColumnValues],
    diagnostics: Mapping[str, ColumnValues] | None = None,
    *,
    rank_by: str | None = None,
) -> ClientTable:
    """Return the columns of a table of clients, of which ``client`` is one.

    ``diagnostics`` are further columns, in a table of their own. A table of more than
    :data:`MAX_ROWS` clients lists those at the percentiles of the column ``rank_by``; None means
    at equal distances.
    """
    clients = len(columns["client"])
    rows = None if clients <= MAX_ROWS else _rows(columns, rank_by)
    table: ClientTable = {name: _listed(column, rows) for name, column in columns.items()}
    if diagnostics is not None:
        table["diagnostics"] = {k: _listed(each, rows) for k, each in diagnostics.items()}
    if rows is None:
        return table
    measured = {**columns, **(diagnostics or {})}
    summaries = {name: _summary(each) for name, each in measured.items() if name != "client"}
    return {**table, "of": clients, "summary": summaries}


def _rows(columns: Mapping[str, ColumnValues], rank_by: str | None) -> NDArray[np.int64]:
    """Return the rows of a large table that are listed, in ascending order."""
    spread = np.linspace(0, len(columns["client"]) - 1, LISTED).round().astype(np.int64)
    if rank_by is None:
        return spread
    ranks = np.argsort(np.asarray(columns[rank_by]), kind="stable")
    return np.sort(ranks[spread])


def _listed(column: ColumnValues, rows: NDArray[np.int64] | None) -> list[Any]:
    if rows is None:
        return column.tolist() if isinstance(column, np.ndarray) else list(column)
    if isinstance(column, np.ndarray):
        chosen: list[Any] = column[rows].tolist()
        return chosen
    return [column[row] for row in rows.tolist()]


def _summary(column: ColumnValues) -> dict[str, float]:
    """Return count, mean, standard deviation and quantiles of the known values."""
    values = np.array([np.nan if value is None else value for value in column], np.float64)
    values = values[~np.isnan(values)]
    if not len(values):
        return {"count": 0}
    quantiles = np.quantile(values, list(_QUANTILES.values())).tolist()
    return {
        "count": len(values),
        "mean": float(values.mean()),
        "sd": float(values.std()),
        "min": float(values.min()),
        **dict(zip(_QUANTILES, quantiles, strict=True)),
        "max": float(values.max()),
    }


class ClientTables(Sequence[ClientTable]):
    """The tables in a file with one per line; they are read anew for every use.

    What is appended to the file later is not included.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = path.stat().st_size if path.is_file() else 0

    def __iter__(self) -> Iterator[ClientTable]:
        if not self._size:
            return
        try:
            with self._path.open("rb") as file:
                position = 0
                for line in file:
                    position += len(line)
                    if position > self._size or not line.endswith(b"\n"):
                        return  # appended later, or an incomplete last line
                    yield parse_line(line[:-1], self._path)
        except OSError as error:
            raise self._unreadable(error) from None

    def __reversed__(self) -> Iterator[ClientTable]:
        if not self._size:
            return
        try:
            with self._path.open("rb") as file:
                size = min(self._size, os.fstat(file.fileno()).st_size)
                if not size:
                    return  # it was cut since
                with mmap(file.fileno(), size, access=ACCESS_READ) as content:
                    end = content.rfind(b"\n")  # an incomplete last line is left out
                    while end >= 0:
                        start = content.rfind(b"\n", 0, end) + 1
                        yield parse_line(content[start:end], self._path)
                        end = start - 1
        except OSError as error:
            raise self._unreadable(error) from None

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, index: int) -> ClientTable: ...

    @overload
    def __getitem__(self, index: slice) -> list[ClientTable]: ...

    def __getitem__(self, index: int | slice) -> ClientTable | list[ClientTable]:
        if isinstance(index, slice):
            return list(self)[index]
        # Only as many tables are in memory as are needed to find this one.
        if index >= 0:
            for table in islice(self, index, None):
                return table
        else:
            last = deque(self, maxlen=-index)
            if len(last) == -index:
                return last[0]
        raise IndexError(index)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _unreadable(self, error: OSError) -> FolderError:
        return FolderError(f"{self._path}: cannot be read: {error.strerror}")

    def __repr__(self) -> str:
        return f"ClientTables({str(self._path)!r})"
