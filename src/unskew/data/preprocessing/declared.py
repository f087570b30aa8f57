"""Columns that the user describes: their kind, the range of their numbers, or their categories."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from unskew.data.preprocessing.cells import date_of, number_of
from unskew.data.preprocessing.kinds import KINDS, LARGEST, ColumnKind
from unskew.errors import UnskewError
from unskew.utils.specs import explain

MAX_LEVELS = 10_000
"""The largest number of categories of a column."""
_FORMS = "a kind (number, boolean, date, category, text), a range (0..120) or categories (low|high)"


@dataclass(frozen=True)
class Declared:
    """What the user says about a column, so that nothing has to be inferred from the data."""

    kind: ColumnKind
    low: float | None = None
    high: float | None = None
    """The range of numbers or dates (in days since 1970); values outside are moved to its ends."""
    levels: tuple[str, ...] | None = None
    """The categories."""

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The range, or None if there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def to_json(self) -> list[Any]:
        """Return plain values."""
        return [self.kind, self.low, self.high, None if self.levels is None else list(self.levels)]


_End = Annotated[float, Field(strict=True, allow_inf_nan=False)] | None
_Levels = Annotated[tuple[Annotated[str, Field(strict=True)], ...], Field(max_length=MAX_LEVELS)]
_SCHEMA = TypeAdapter(dict[str, tuple[ColumnKind, _End, _End, _Levels | None]])


def read_schema(plain: Any) -> dict[str, Declared]:
    """Read what :meth:`Declared.to_json` returned for each column; anybody may have changed it."""
    try:
        columns = {name: Declared(*parts) for name, parts in _SCHEMA.validate_python(plain).items()}
    except ValidationError as error:
        raise UnskewError(f"schema: {explain(error).partition('; ')[0]}") from None
    for name, column in columns.items():
        if column.bounds is not None:
            _range(name, column.bounds, column.kind)
    return columns


def declare(name: str, said: Any) -> Declared:
    """Read what a user says about a column: a kind, a range (low, high), or a list of categories.

    In a spec string a range is ``0..120`` or ``2020-01-01..2024-12-31`` and categories are
    ``low|high``.
    """
    if isinstance(said, Declared):
        return said
    if isinstance(said, str):
        return _from_text(name, said)
    if isinstance(said, Sequence) and len(said) == 2 and not any(isinstance(s, str) for s in said):
        return _range(name, said, "number")
    if isinstance(said, Sequence) and len(said) and all(isinstance(each, str) for each in said):
        return _categories(name, said)
    raise UnskewError(f"columns: {name!r} must be {_FORMS} (got {said!r})")


def declared_columns(said: Mapping[str, Any] | str | None) -> dict[str, Declared]:
    """Read what a user says about columns: a mapping, or ``age=0..120,ward=category``."""
    if isinstance(said, str):
        pairs = [piece.partition("=") for piece in said.split(",") if piece.strip()]
        without = [name for name, equals, _ in pairs if not equals]
        if without:
            raise UnskewError(f"columns: write {without[0].strip()!r} as column=kind, {_FORMS}")
        said = {name.strip(): value.strip() for name, _, value in pairs}
    return {name: declare(name, each) for name, each in (said or {}).items()}


def _from_text(name: str, said: str) -> Declared:
    if said in KINDS:
        return Declared(said)
    low, dots, high = said.partition("..")
    if dots:
        dates = [date_of(end.strip()) for end in (low, high)]
        if not any(map(isnan, dates)):
            return _range(name, dates, "date")
        return _range(name, [number_of(end.strip()) for end in (low, high)], "number")
    if "|" in said:
        return _categories(name, [level.strip() for level in said.split("|")])
    raise UnskewError(f"columns: {name!r} must be {_FORMS} (got {said!r})")


def _range(name: str, ends: Sequence[Any], kind: ColumnKind) -> Declared:
    low, high = float(ends[0]), float(ends[1])
    if not -LARGEST <= low < high <= LARGEST:
        raise UnskewError(f"columns: the range of {name!r} must increase, such as 0..120")
    return Declared(kind, low, high)


def _categories(name: str, levels: Sequence[str]) -> Declared:
    distinct = tuple(sorted(set(levels) - {""}))
    if not distinct:
        raise UnskewError(f"columns: {name!r} must have at least one category")
    return Declared("category", levels=distinct)
