"""Read the columns of CSV and Parquet files, and convert them to numbers, ids and labels."""

import csv
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.expansion import check_expansion
from unskew.errors import UnskewError
from unskew.utils.printable import printable

Array = NDArray[Any]

_MAX_LISTED, _MAX_TEXT = 20, 80
"""How many columns, and how many characters of a cell, an error message shows."""


class TableFile:
    """The columns of one file; every error names the file, the column and the row."""

    def __init__(self, file: Path) -> None:
        if not file.is_file():
            raise UnskewError(f"{file}: is not a file")
        self.file = file
        self._columns = _parquet(file) if file.suffix in (".parquet", ".pq") else _csv(file)
        if not next((len(column) for column in self._columns.values()), 0):
            raise UnskewError(f"{file}: has no rows")

    @property
    def names(self) -> list[str]:
        """The names of the columns in the order of the file."""
        return list(self._columns)

    def numbers(self, name: str) -> NDArray[np.float32]:
        """Return a column as float32."""
        column = self._column(name)
        try:
            with np.errstate(all="ignore"):  # a number too large for float32 is infinite
                numbers = column.astype(np.float32)
        except (ValueError, TypeError):
            row = next((i for i, value in enumerate(column) if not _is_number(value)), 0)
            raise UnskewError(
                f"{self.file}: column {name!r} must hold numbers, but row {row + 1} has "
                f"{_shortened(column[row])}; select numeric columns with features"
            ) from None
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad):
            problem = "has no number" if np.isnan(numbers[bad[0]]) else "is infinite"
            raise UnskewError(f"{self.file}: column {name!r} {problem} in row {bad[0] + 1}")
        return numbers

    def ids(self, name: str) -> Array:
        """Return a column as integers if it holds nothing else, otherwise as text."""
        column = self._column(name)
        for row, value in enumerate(column):
            if _is_empty(value):
                raise UnskewError(f"{self.file}: column {name!r} is empty in row {row + 1}")
        try:
            whole = column.astype(np.int64)
        except (ValueError, OverflowError, TypeError):
            return column.astype(str)
        exact = column.dtype.kind == "U" or np.array_equal(whole, column)
        return whole if exact and column.dtype.kind != "b" else column.astype(str)

    def _column(self, name: str) -> Array:
        if name not in self._columns:
            raise UnskewError(
                f"{self.file}: has no column {name!r}; it has: {_listed(self._columns)} (set "
                "--label-column, --client-column and --features, or label, client and features in "
                "Python)"
            )
        column = self._columns[name]
        values = column if column.dtype.kind == "O" else ()
        nested = next((value for value in values if not _is_plain(value)), None)
        if column.dtype.kind not in "OUbiuf" or nested is not None:
            kind = column.dtype if nested is None else type(nested).__name__
            raise UnskewError(
                f"{self.file}: column {name!r} must hold one number or text per row (got {kind}); "
                "select other columns with features"
            )
        return column


def _csv(file: Path) -> Mapping[str, Array]:
    with file.open(newline="", encoding="utf-8-sig") as lines:
        try:
            rows = [row for row in csv.reader(lines) if row]
        except (ValueError, csv.Error, MemoryError) as error:
            raise UnskewError(f"{file}: cannot be read as CSV ({error})") from None
    if not rows:
        raise UnskewError(f"{file}: is empty; it needs a header line and one row per sample")
    header, *samples = rows
    _check_rows(file, header, samples)
    columns = zip(*samples, strict=True) if samples else [()] * len(header)
    return {name: np.array(column, str) for name, column in zip(header, columns, strict=True)}


def _check_rows(file: Path, header: Sequence[str], samples: Sequence[Sequence[str]]) -> None:
    if len(set(header)) != len(header):
        raise UnskewError(f"{file}: two columns have the same name; rename one in the header")
    for number, sample in enumerate(samples, start=1):
        if len(sample) != len(header):
            raise UnskewError(
                f"{file}: row {number} has {len(sample)} fields, but the header has {len(header)}"
            )


def _parquet(file: Path) -> Mapping[str, Array]:
    try:
        from pyarrow import ArrowException, parquet  # noqa: PLC0415 (an extra)
    except ImportError:
        raise UnskewError(
            f'{file}: reading Parquet needs pyarrow: pip install "unskew[parquet]"'
        ) from None
    try:
        with parquet.ParquetFile(file) as opened:
            about = opened.metadata
            cells = about.num_rows * max(1, about.num_columns)
            check_expansion(file, file.stat().st_size, 8 * cells, max_ratio=500)
            table = opened.read()
        return {name: table[name].to_numpy() for name in table.column_names}
    except UnskewError:
        raise
    except (OSError, ValueError, KeyError, TypeError, MemoryError, ArrowException) as error:
        reason = " ".join(str(error).split())
        raise UnskewError(f"{file}: cannot be read as Parquet ({reason})") from None


def _listed(names: Mapping[str, Array]) -> str:
    """Return the first columns; a file may have thousands."""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(printable(name)[:_MAX_TEXT] for name in list(names)[:_MAX_LISTED]) + more


def _shortened(value: object) -> str:
    text = repr(str(value))
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | np.generic | Decimal)


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        return False
    return True


def _is_empty(value: object) -> bool:
    is_nan = isinstance(value, float | np.floating) and np.isnan(value)
    return value is None or value == "" or bool(is_nan)
