"""The cells of a raw column: gaps, numbers, booleans, dates and texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from unskew.errors import UnskewError

T = TypeVar("T")
Stored = Literal["text", "number", "boolean", "date"]
"""How a file stores a column; a CSV file stores texts only."""

GAPS = frozenset(
    ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None", "NaT", "?")
)
"""The texts that stand for a missing value."""

BOOLEANS = {"true": 1.0, "yes": 1.0, "t": 1.0, "y": 1.0, "1": 1.0}
BOOLEANS |= {"false": 0.0, "no": 0.0, "f": 0.0, "n": 0.0, "0": 0.0}
"""The texts that stand for a boolean, in any case."""

_SECONDS_PER_DAY = 86_400.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, eq=False)
class Column:
    """One raw column: texts, in which an empty one is a gap, or numbers, in which NaN is a gap.

    Booleans are stored as 0 and 1, dates as days since 1970.
    """

    stored: Stored
    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: NDArray[np.int64]) -> "Column":
        """Return some of the rows."""
        return Column(self.stored, self.values[rows])

    @staticmethod
    def of(values: Any, name: str = "x") -> "Column":
        """Convert an array, such as a column of a file or a DataFrame."""
        array = np.asarray(values)
        kind = array.dtype.kind
        if array.ndim != 1:
            raise UnskewError(
                f"column {name!r} must hold one value per row (got shape {array.shape})"
            )
        if kind == "b":
            return Column("boolean", array.astype(np.float64))
        if kind in "iuf":
            return Column("number", array.astype(np.float64))
        if kind == "M":
            days = array.astype("datetime64[us]").astype(np.float64) / (_SECONDS_PER_DAY * 1e6)
            return Column("date", np.where(np.isnat(array), np.nan, days))
        if kind == "U":
            return Column("text", _without_gaps(array))
        if kind == "O":
            return _of_objects(array, name)
        raise UnskewError(
            f"column {name!r} must hold numbers, texts, booleans or dates (got {array.dtype})"
        )

    def is_present(self) -> NDArray[np.bool_]:
        """Return which cells are not gaps."""
        if self.stored == "text":
            return np.asarray(self.values != "", np.bool_)
        return np.asarray(~np.isnan(self.values), np.bool_)

    def numbers(self) -> NDArray[np.float64]:
        """Return the cells as numbers; NaN where a cell is a gap or no number."""
        return self._parsed(number_of) if self.stored != "date" else self._unparsed()

    def booleans(self) -> NDArray[np.float64]:
        """Return the cells as 1 and 0; NaN where a cell is a gap or no boolean."""
        if self.stored == "number":
            return np.where((self.values == 0) | (self.values == 1), self.values, np.nan)
        return self._parsed(boolean_of) if self.stored != "date" else self._unparsed()

    def dates(self) -> NDArray[np.float64]:
        """Return the cells as days since 1970; NaN where a cell is a gap or no date."""
        return self._parsed(date_of) if self.stored in ("text", "date") else self._unparsed()

    def texts(self) -> NDArray[np.str_]:
        """Return the cells as texts; a gap is empty."""
        if self.stored == "text":
            return self.values
        write: dict[str, Callable[[float], str]] = {
            "number": number_text,
            "boolean": lambda value: "true" if value else "false",
            "date": lambda value: datetime.fromtimestamp(value * _SECONDS_PER_DAY, UTC).isoformat(),
        }
        cells = ["" if np.isnan(v) else write[self.stored](v) for v in self.values.tolist()]
        return np.array(cells, str)

    def _unparsed(self) -> NDArray[np.float64]:
        return np.full(len(self), np.nan)

    def _parsed(self, parse: Callable[[str], float]) -> NDArray[np.float64]:
        """Return the number that each text stands for; every distinct text is parsed once."""
        if self.stored != "text":
            return self.values
        return np.array(mapped(self.values, parse), np.float64)


def mapped(texts: NDArray[np.str_], function: Callable[[str], T]) -> list[T]:
    """Return a function of each text; it is called once for every distinct text."""
    listed = texts.tolist()
    found = {text: function(text) for text in set(listed)}
    return [found[text] for text in listed]


def number_of(text: str) -> float:
    """Return the number that a text stands for, or NaN."""
    try:
        return float(text) if "_" not in text else np.nan
    except ValueError:
        return np.nan


def boolean_of(text: str) -> float:
    """Return 1 for true or yes, 0 for false or no, and NaN for anything else."""
    return BOOLEANS.get(text.lower(), np.nan)


def date_of(text: str) -> float:
    """Return the days since 1970 of a date in ISO format, or NaN. Without a zone it is UTC."""
    if len(text) < len("1970-01-01") or text[4] != "-":
        return np.nan
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return np.nan
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (zoned - _EPOCH).total_seconds() / _SECONDS_PER_DAY


def number_text(value: float) -> str:
    """Return a number as text; a whole number has no decimal point, as in a CSV file."""
    return str(int(value)) if value.is_integer() else repr(value)


def _of_objects(array: NDArray[np.object_], name: str) -> Column:
    """Convert Python objects: the type that all of them have, or texts."""
    cells = [None if _is_gap(cell) else cell for cell in array.tolist()]
    present = [cell for cell in cells if cell is not None]
    if all(isinstance(cell, bool | np.bool_) for cell in present) and present:
        return Column("boolean", _floats(cells))
    if all(isinstance(cell, int | float | np.number | Decimal) for cell in present) and present:
        return Column("number", _floats(cells))
    other = next((cell for cell in present if not _is_plain(cell)), None)
    if other is not None:
        raise UnskewError(
            f"column {name!r} must hold one number, text, boolean or date per row (got "
            f"{type(other).__name__})"
        )
    return Column("text", _without_gaps(np.array([_text_of(cell) for cell in cells], str)))


def _floats(cells: Sequence[Any]) -> NDArray[np.float64]:
    try:
        return np.array([np.nan if cell is None else float(cell) for cell in cells], np.float64)
    except OverflowError:  # an integer beyond float64 is reported as infinite
        return np.array([np.nan if cell is None else np.inf for cell in cells], np.float64)


def _is_plain(cell: object) -> bool:
    dates = hasattr(cell, "isoformat")
    return dates or isinstance(cell, str | bool | int | float | np.generic | Decimal)


def _text_of(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool | np.bool_):
        return "true" if cell else "false"
    if isinstance(cell, int | float | np.number | Decimal):
        return number_text(float(cell))
    return str(cell.isoformat()) if hasattr(cell, "isoformat") else str(cell)


def _is_gap(cell: object) -> bool:
    """Return whether a Python value is missing: None, NaN, or pandas's NA and NaT."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float | np.floating) and bool(np.isnan(cell))


def _without_gaps(texts: NDArray[np.str_]) -> NDArray[np.str_]:
    """Return texts without surrounding spaces, and with every kind of gap as an empty text."""
    plain = (text.strip() for text in texts.tolist())
    return np.array(["" if text in GAPS else text for text in plain], str)
