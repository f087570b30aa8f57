"""Columns that no model should learn from as they are: ids, exact times, and numbers as text."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.preprocessing.cells import Column, number_of
from unskew.data.preprocessing.kinds import ColumnKind

_MIN_ROWS, _MIN_NUMBERS = 20, 100
"""Fewer rows say nothing about texts and times, or about whole numbers."""
_SHARE = 0.5
"""Texts and times identify rows if more than this share of them are distinct."""
_GAP = 10
"""Distinct whole numbers identify rows if they are at most this far apart on average."""
_ID = re.compile(r"(^|[_\s.-])(id|ids|key|uuid|guid|nr|no)$", re.IGNORECASE)
"""Names of ids: distinct whole numbers of such a column identify rows, however far apart."""
_RUNS = ((re.compile(r"[^\W\d_]+"), "a"), (re.compile(r"\d+"), "9"))
_MAX_FORM = 20

LEAVE_OUT = (
    "leave it out (features) or, if it holds what it seems to, declare it (columns, such as "
    "ward=category)"
)


def identifying(columns: Mapping[str, Column], kinds: Mapping[str, ColumnKind]) -> dict[str, str]:
    """Return the columns that are nearly unique per row or numbers as text, with the reason.

    A table that consists of one text column is meant to be read, and is not checked.
    """
    found = {name: _reason(name, columns[name], kind) for name, kind in kinds.items()}
    return {name: reason for name, reason in found.items() if reason is not None}


def _reason(name: str, column: Column, kind: ColumnKind) -> str | None:
    if kind == "category":
        texts = column.texts()[column.is_present()]
        if len(texts) and sum(map(_has_decimal_comma, texts.tolist())) > _SHARE * len(texts):
            return f"holds numbers with decimal commas, such as {form_of(texts[0])!r}: write 12.5"
        form = form_of(texts[0]) if len(texts) else ""
        return _nearly_unique(texts, f"values, such as {form!r},")
    if kind == "date":
        dates = _known(column.dates())
        return _nearly_unique(dates, "exact times") if (dates % 1).any() else None
    return _row_numbers(name, _known(column.numbers())) if kind == "number" else None


def _has_decimal_comma(text: str) -> bool:
    return text.count(",") == 1 and not np.isnan(number_of(text.replace(",", ".")))


def form_of(text: str) -> str:
    """Return the form of a cell: runs of letters become a, and runs of digits 9."""
    for run, sign in _RUNS:
        text = run.sub(sign, text)
    return text[:_MAX_FORM]


def _nearly_unique(values: NDArray[Any], what: str) -> str | None:
    distinct = len(np.unique(values))
    if len(values) < _MIN_ROWS or distinct <= _SHARE * len(values):
        return None
    return f"has {distinct:,} different {what} in {len(values):,} rows, so it identifies rows"


def _row_numbers(name: str, values: NDArray[np.float64]) -> str | None:
    count = len(values)
    is_id = _ID.search(name) is not None
    if count < (_MIN_ROWS if is_id else _MIN_NUMBERS) or (values % 1).any():
        return None
    if len(np.unique(values)) < count or not (is_id or np.ptp(values) <= _GAP * count):
        return None
    return f"has a whole number of its own in each of {count:,} rows, so it identifies rows"


def _known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[np.isfinite(values)]
