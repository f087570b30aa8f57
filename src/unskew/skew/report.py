"""What a recipe did: who holds how much of what, and how skewed that is, in numbers."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class SkewReport:
    """Sizes, label counts, dropped samples and notes of one partition."""

    skew: str
    sizes: tuple[int, ...]
    label_counts: tuple[tuple[int, ...], ...]
    dropped: int
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "SkewReport":
        """Undo :meth:`to_dict`, also after a trip through JSON."""
        return cls(
            skew=values["skew"],
            sizes=tuple(values["sizes"]),
            label_counts=tuple(tuple(row) for row in values["label_counts"]),
            dropped=values["dropped"],
            notes=tuple(values["notes"]),
        )
