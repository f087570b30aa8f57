"""What a column holds, decided from counts that add up over clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from unskew.data.preprocessing.cells import Column, mapped

ColumnKind = Literal["number", "boolean", "date", "category", "text", "empty"]
"""What a column holds; ``empty`` is a column without a single value."""
KINDS = tuple(kind for kind in get_args(ColumnKind) if kind != "empty")

LARGEST = 1e100
"""Numbers beyond this size are refused, because their squares are infinite."""
WORDS_OF_TEXT = 4
"""A column of texts with at least this many words on average holds text, not categories."""
_MOSTLY = 0.9
"""Where this share of the cells are numbers or dates, but not all, the others are mistakes."""


@dataclass(frozen=True)
class Evidence:
    """How many cells of a column can be read in which way. Evidence of several clients adds up."""

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

    @staticmethod
    def total(parts: "Sequence[Evidence]") -> "Evidence":
        """Add up the evidence of several clients."""
        rows = (vars(part).values() for part in parts)
        return Evidence(*(sum(column) for column in zip(*rows, strict=True)))

    def kind(self) -> ColumnKind:
        """Return what the column holds."""
        if not self.present:
            return "empty"
        if self.booleans == self.present:
            return "boolean"
        if self.numbers == self.present:
            return "number"
        if self.dates == self.present:
            return "date"
        return "text" if self.words >= WORDS_OF_TEXT * self.present else "category"

    def problem(self) -> str | None:
        """Return what is wrong with the column, or None."""
        if self.unusable and self.numbers == self.present:
            return f"{self.unusable} of {self.present} cells are infinite or beyond {LARGEST:g}"
        for count, what in ((self.numbers, "numbers"), (self.dates, "dates")):
            if _MOSTLY * self.present <= count < self.present:
                others = self.present - count
                return f"{others} of {self.present} cells are not {what}, and all others are"
        return None


def problems(evidence: Mapping[str, Evidence]) -> dict[str, str]:
    """Return every column that cannot be used as it is, with the reason."""
    found = {name: each.problem() for name, each in evidence.items()}
    return {name: problem for name, problem in found.items() if problem is not None}
