"""The fitted transformation: what every client, and the predictor, applies to raw columns."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from unskew.data.preprocessing.cells import Column, mapped
from unskew.data.preprocessing.declared import MAX_LEVELS
from unskew.data.preprocessing.kinds import LARGEST
from unskew.data.preprocessing.names import check_has_columns
from unskew.data.preprocessing.spec import MAX_WORDS
from unskew.data.text import SPECIAL, Vocabulary
from unskew.errors import UnskewError
from unskew.utils.specs import explain

OTHER = "=(other)"
"""How the feature of all categories that training samples do not have is called."""

_Finite = Annotated[float, Field(allow_inf_nan=False)]


class ColumnStep(BaseModel):
    """What becomes of one column."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    name: str
    kind: Literal["number", "boolean", "date", "category", "text", "empty"]
    center: _Finite = 0.0
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    low: _Finite | None = None
    high: _Finite | None = None
    levels: Annotated[tuple[str, ...], Field(max_length=MAX_LEVELS, strict=False)] | None = None
    """The categories with a feature of their own; all others share one more feature."""
    buckets: Annotated[int, Field(ge=2, le=10_000)] | None = None
    words: Annotated[tuple[str, ...], Field(max_length=MAX_WORDS, strict=False)] | None = None
    length: Annotated[int, Field(ge=1, le=10_000)] | None = None
    gap: bool = False
    """Whether a feature marks the cells that are missing."""

    def feature_names(self) -> list[str]:
        """Return one name per feature of the column."""
        names: list[str] = []
        if self.kind in ("number", "boolean", "date"):
            names = [self.name]
        elif self.levels is not None:
            names = [*(f"{self.name}={level}" for level in self.levels), f"{self.name}{OTHER}"]
        elif self.buckets is not None:
            names = [f"{self.name}#{bucket}" for bucket in range(self.buckets)]
        return names + [f"{self.name} is missing"] * self.gap

    def unreadable(self, column: Column) -> int:
        """Return how many cells are neither a gap nor what the column holds."""
        present = column.is_present()
        if self.kind in ("category", "text", "empty"):
            return 0
        values = self._values(column)
        return int((present & (np.isnan(values) | (np.abs(values) > LARGEST))).sum())

    def features(self, column: Column) -> list[NDArray[np.float64]]:
        """Return the features of a column, each with one number per row."""
        present = column.is_present()
        columns: list[NDArray[np.float64]] = []
        if self.kind in ("number", "date"):
            values = self._values(column)
            if self.low is not None and self.high is not None:
                values = np.clip(values, self.low, self.high)
            present = present & ~np.isnan(values)
            columns = [np.where(present, (values - self.center) / self.scale, 0.0)]
        elif self.kind == "boolean":
            values = self._values(column)
            present = present & ~np.isnan(values)
            columns = [np.where(present, 2 * values - 1, 0.0)]
        elif self.kind == "category":
            index = self._category(column.texts())
            width = len(self.feature_names()) - self.gap
            columns = [np.where(present, index == place, 0.0) for place in range(width)]
        if self.gap:
            columns.append((~present).astype(np.float64))
        return columns

    def _values(self, column: Column) -> NDArray[np.float64]:
        if self.kind == "number":
            return column.numbers()
        return column.dates() if self.kind == "date" else column.booleans()

    def _category(self, texts: NDArray[np.str_]) -> NDArray[np.int64]:
        """Return the feature of each cell: its category's or bucket's, or that of all others."""
        places = {level: place for place, level in enumerate(self.levels or ())}
        buckets = self.buckets
        if buckets is None:
            return np.array(mapped(texts, lambda text: places.get(text, len(places))), np.int64)
        found = mapped(texts, lambda text: bucket_of(self.name, text, buckets))
        return np.array(found, np.int64)


class Transform(BaseModel):
    """A step per column, in the order of the features."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    columns: tuple[ColumnStep, ...] = Field(strict=False, min_length=1)

    @model_validator(mode="after")
    def _steps_fit_together(self) -> "Transform":
        if not _fit_together(self):
            raise ValueError("its columns do not fit together")
        return self

    @property
    def names(self) -> list[str]:
        """The columns that rows must have."""
        return [step.name for step in self.columns]

    @property
    def vocabulary(self) -> tuple[str, ...] | None:
        """The words of a text column; None if the columns become numbers."""
        return next((step.words for step in self.columns if step.kind == "text"), None)

    @property
    def feature_names(self) -> list[str]:
        """One name per feature; none for a text."""
        return [name for step in self.columns for name in step.feature_names()]

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        tokens = (step.length or 0 for step in self.columns if step.kind == "text")
        return sum(tokens) or len(self.feature_names)

    def apply(
        self, columns: Mapping[str, Column], where: str = "rows", *, lenient: bool = False
    ) -> NDArray[Any]:
        """Return the features of raw columns: float32, or int32 tokens of a text column.

        Cells that cannot be read are an error that lists all columns with any; if ``lenient``,
        they are gaps.
        """
        check_has_columns(columns, self.names, where)
        if not lenient:
            counts = {step.name: step.unreadable(columns[step.name]) for step in self.columns}
            kinds = {step.name: step.kind for step in self.columns}
            found = [f"{name!r} ({kinds[name]}): {n}" for name, n in counts.items() if n]
            if found:
                raise UnskewError(
                    f"{where}: these columns have cells that cannot be read or are infinite: "
                    f"{'; '.join(found)}; correct or blank them"
                )
        if self.vocabulary is not None:
            (step,) = (step for step in self.columns if step.kind == "text")
            assert step.length is not None
            texts = columns[step.name].texts().tolist()
            return Vocabulary(self.vocabulary).encode(texts, step.length)
        features = [each for step in self.columns for each in step.features(columns[step.name])]
        with np.errstate(over="ignore"):  # a number too large for float32 is reported as infinite
            return np.stack(features, axis=1).astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, without those that are the default."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @staticmethod
    def from_json(plain: object) -> "Transform":
        """Read plain values, which anybody may have changed."""
        try:
            return Transform.model_validate(plain)
        except ValidationError as error:
            raise UnskewError(f"transform: {explain(error).partition('; ')[0]}") from None


def bucket_of(column: str, text: str, buckets: int) -> int:
    """Return the bucket of a category; it depends on the names of column and category alone."""
    digest = hashlib.blake2b(f"{column}={text}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % buckets


def vocabulary_of(counts: Mapping[str, int], size: int) -> tuple[str, ...]:
    """Return the special tokens and the most frequent words, then alphabetically."""
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return (*SPECIAL, *ranked)[:size]


def most_frequent(counts: Mapping[str, int], number: int) -> tuple[str, ...]:
    """Return the most frequent categories in alphabetical order."""
    ranked = sorted(counts, key=lambda level: (-counts[level], level))
    return tuple(sorted(ranked[:number]))


def added_up(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add up the counts of several clients."""
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


def _fit_together(transform: Transform) -> bool:
    """Return whether the steps can be features together."""
    texts = [step for step in transform.columns if step.kind == "text"]
    wrong = len(set(transform.names)) < len(transform.columns)
    wrong |= bool(texts) and len(transform.columns) > 1
    wrong |= any(step.words is None or step.length is None for step in texts)
    wrong |= any(step.words is not None and step.words[:2] != SPECIAL for step in texts)
    wrong |= any(
        (step.levels is None) == (step.buckets is None)
        for step in transform.columns
        if step.kind == "category"
    )
    return not wrong and (bool(texts) or bool(transform.feature_names))
