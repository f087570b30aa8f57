"""Read the columns of CSV and Parquet files and of DataFrames: cells, numbers, ids and labels."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from unskew.data.expansion import check_expansion
from unskew.data.preprocessing.cells import Column
from unskew.data.preprocessing.names import check_has_columns
from unskew.errors import UnskewError

Array = NDArray[Any]
T = TypeVar("T")

_MAX_TEXT = 80
"""How many characters of a cell an error message shows."""


TableLike = str | Path | Iterable[Mapping[str, Any]] | Any
"""A CSV or Parquet file, a pandas DataFrame, or rows that map names of columns to cells."""


class RawTable:
    """The columns of a file, a DataFrame or rows; every error names the table and the columns."""

    def __init__(self, columns: Mapping[str, Array], where: str, name: str) -> None:
        self._columns, self.where, self.name = columns, where, name
        if not next((len(column) for column in columns.values()), 0):
            raise UnskewError(f"{where}: has no rows")

    @staticmethod
    def of(table: TableLike, what: str = "table") -> "RawTable":
        """Read a file, or take the columns of a DataFrame or of rows."""
        if isinstance(table, str | Path):
            file = Path(table)
            if not file.is_file():
                raise UnskewError(f"{file}: is not a file")
            columns = _parquet(file) if file.suffix in (".parquet", ".pq") else _csv(file)
            return RawTable(columns, str(file), file.stem)
        if hasattr(table, "columns") and hasattr(table, "iloc"):
            return RawTable(_frame(table, what), what, what)
        rows = [table] if isinstance(table, Mapping) else table
        if not isinstance(rows, Iterable):
            raise UnskewError(
                f"{what} must be a CSV or Parquet file, a DataFrame, or rows (got {table!r})"
            )
        listed = list(rows)
        wrong = next((row for row in listed if not isinstance(row, Mapping)), None)
        if wrong is not None:
            raise UnskewError(
                f"{what}: every row must map names of columns to cells (got {wrong!r})"
            )
        names = dict.fromkeys(str(name) for row in listed for name in row)
        columns = {name: _objects([row.get(name) for row in listed]) for name in names}
        return RawTable(columns, what, what)

    @property
    def names(self) -> list[str]:
        """The names of the columns in the order of the table."""
        return list(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def check_has(self, names: Iterable[str], hint: str = "") -> None:
        """Raise an error that lists all names that are not columns."""
        check_has_columns(self._columns, names, self.where, hint)

    def cells(self, names: Sequence[str]) -> dict[str, Column]:
        """Return columns as they are; one error lists all that hold something else than cells."""
        self.check_has(names)
        return _collected(names, self.where, lambda name: Column.of(self._columns[name], name))

    def numbers(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return columns of numbers as float32; one error lists all that hold anything else."""
        self.check_has(names)
        return np.stack(list(_collected(names, self.where, self._numbers).values()), axis=1)

    def target_numbers(self, name: str) -> NDArray[np.float32]:
        """Return the column of regression targets, which has no gaps."""
        self.check_has([name])
        try:
            return self._numbers(name)
        except UnskewError as error:
            raise UnskewError(
                f"{self.where}: the label {error}; remove rows without one, or set another task"
            ) from None

    def _numbers(self, name: str) -> NDArray[np.float32]:
        column = self._plain_column(name)
        try:
            with np.errstate(all="ignore"):  # a number too large for float32 is infinite
                numbers = column.astype(np.float32)
        except (ValueError, TypeError):
            row = next((i for i, value in enumerate(column) if not _is_number(value)), 0)
            raise UnskewError(
                f"column {name!r} must hold numbers, but row {row + 1} has "
                f"{_shortened(column[row])}"
            ) from None
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad):
            problem = "has no number" if np.isnan(numbers[bad[0]]) else "is infinite"
            raise UnskewError(f"column {name!r} {problem} in row {bad[0] + 1}")
        return numbers

    def holds_floats(self, name: str) -> bool:
        """Return whether a column is stored as floating-point numbers without gaps."""
        column = self._columns[name]
        return column.dtype.kind == "f" and not bool(np.isnan(column).any())

    def ids(self, name: str) -> Array:
        """Return a column as integers if it holds nothing else, otherwise as text."""
        self.check_has([name])
        try:
            column = self._plain_column(name)
        except UnskewError as error:
            raise UnskewError(f"{self.where}: {error}") from None
        for row, value in enumerate(column):
            if _is_empty(value):
                raise UnskewError(f"{self.where}: column {name!r} is empty in row {row + 1}")
        try:
            with np.errstate(invalid="ignore"):  # infinite numbers are not ids: see below
                whole = column.astype(np.int64)
        except (ValueError, OverflowError, TypeError):
            return column.astype(str)
        exact = column.dtype.kind == "U" or np.array_equal(whole, column)
        return whole if exact and column.dtype.kind != "b" else column.astype(str)

    def _plain_column(self, name: str) -> Array:
        column = self._columns[name]
        values = column if column.dtype.kind == "O" else ()
        nested = next((value for value in values if not _is_plain(value)), None)
        if column.dtype.kind not in "OUbiuf" or nested is not None:
            kind = column.dtype if nested is None else type(nested).__name__
            raise UnskewError(f"column {name!r} must hold one number or text per row (got {kind})")
        return column


def _collected(names: Sequence[str], where: str, read: Callable[[str], T]) -> dict[str, T]:
    """Read columns; raise the problems of all of them at once."""
    found, wrong = {}, []
    for name in names:
        try:
            found[name] = read(name)
        except UnskewError as error:
            wrong.append(str(error))
    if wrong:
        raise UnskewError(
            f"{where}: {'; '.join(wrong)}; select other columns with features, or have the columns "
            "prepared (prepare=federated)"
        )
    return found


def _frame(frame: Any, what: str) -> dict[str, Array]:
    """Return the columns of a pandas DataFrame, in which its missing values are None."""
    names = [str(name) for name in frame.columns]
    if len(set(names)) != len(names):
        raise UnskewError(f"{what}: two columns have the same name; rename one")
    columns = {}
    for place, name in enumerate(names):
        series = frame.iloc[:, place]
        array = series.to_numpy()
        if array.dtype.kind == "O":
            array = _objects(series.astype(object).where(series.notna(), None).tolist())
        columns[name] = array
    return columns


def _objects(cells: Sequence[Any]) -> Array:
    array = np.empty(len(cells), object)
    array[:] = cells
    return array


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
