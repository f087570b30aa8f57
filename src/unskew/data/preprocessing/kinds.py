"""What a column holds: every client counts how its cells can be read, and most clients decide."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from unskew.data.preprocessing.cells import Column, mapped

ColumnKind = Literal["number", "boolean", "date", "category", "text", "empty"]
"""What a column holds; ``empty`` is a column without a single value."""
KINDS: tuple[ColumnKind, ...] = tuple(kind for kind in get_args(ColumnKind) if kind != "empty")

LARGEST = 1e100
"""Numbers beyond this size are refused, because their squares are infinite."""
WORDS_OF_TEXT = 4
"""A column of texts with at least this many words on average holds text, not categories."""
_MOSTLY = 0.9
"""Where this share of the cells are numbers or dates, but not all, the others are mistakes."""
_SENT_AS: dict[ColumnKind, tuple[ColumnKind, ...]] = {
    "number": ("category", "text"),
    "date": ("category", "text"),
    "text": ("category",),
}
"""As which other kinds the values of a column would leave a client one by one."""


@dataclass(frozen=True)
class Evidence:
    """How many cells of a client's column can be read in which way."""

    present: int = 0
    """The cells that are not gaps."""
    numbers: int = 0
    unusable: int = 0
    """Numbers that are infinite or too large."""
    booleans: int = 0
    dates: int = 0
    words: int = 0
    """The number of words in all cells."""

    @staticmethod
    def of(column: Column) -> "Evidence":
        """Count the cells of a column."""
        present, numbers = column.is_present(), column.numbers()
        is_number = ~np.isnan(numbers)
        is_boolean = ~np.isnan(column.booleans())
        if column.stored != "boolean":
            is_boolean &= ~is_number  # 0 and 1 are numbers, unless the file says otherwise
        words = 0
        if column.stored == "text":
            words = sum(mapped(column.values, lambda text: len(text.split())))
        return Evidence(
            present=int(present.sum()),
            numbers=int(is_number.sum()),
            unusable=int((np.abs(numbers) > LARGEST).sum()),
            booleans=int(is_boolean.sum()),
            dates=int((~np.isnan(column.dates())).sum()),
            words=words,
        )

    def kind(self) -> ColumnKind:
        """Return what the column holds; a few odd cells among numbers or dates are mistakes."""
        if not self.present:
            return "empty"
        if self.booleans == self.present:
            return "boolean"
        if self.numbers >= _MOSTLY * self.present:
            return "number"
        if self.dates >= _MOSTLY * self.present:
            return "date"
        return "text" if self.words >= WORDS_OF_TEXT * self.present else "category"

    def problem_as(self, kind: ColumnKind) -> str | None:
        """Return how many cells cannot be read as this kind, or None; any cell can be a category.

        A boolean column is not checked here: only its cells say which numbers are 0 or 1.
        """
        counts = {"number": self.numbers, "date": self.dates}
        readable = counts.get(kind, self.present)
        if readable < self.present:
            return f"{self.present - readable} of {self.present} cells are not {kind}s"
        if kind == "number" and self.unusable:
            return f"{self.unusable} of {self.present} cells are infinite or beyond {LARGEST:g}"
        return None


def agreed_kind(evidence: Sequence[Evidence]) -> ColumnKind:
    """Return what most clients hold in a column; with equal votes, the kind listed first."""
    votes = Counter(each.kind() for each in evidence if each.present)
    return max(KINDS, key=lambda kind: votes[kind]) if votes else "empty"


def would_reveal(own: ColumnKind, kind: ColumnKind) -> bool:
    """Return whether a column's values would be sent because they are taken for another kind."""
    return kind in _SENT_AS.get(own, ())
