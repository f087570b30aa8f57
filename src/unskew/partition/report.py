"""What a recipe did: who holds how much of what, and how skewed that is, in numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.partition.base import NOBODY, Partition, SamplePool
from unskew.skew.diagnosis import Diagnosis, diagnose_counts

LISTED = 10_000
"""Up to so many clients are written out one by one; beyond, the diagnosis alone is."""


@dataclass(frozen=True, eq=False)
class PartitionReport:
    """Sizes, label counts, dropped samples, notes and diagnosis of one partition.

    It describes the samples as they were dealt out, before local tests are kept back.
    ``sizes`` and ``label_counts`` (clients x classes) are arrays; they are None in the report of
    more than ``LISTED`` clients that was read back from a file, where the data itself has them.
    """

    skew: str
    sizes: NDArray[np.int64] | None
    label_counts: NDArray[np.int64] | None
    dropped: int
    notes: tuple[str, ...] = ()
    diagnosis: Diagnosis | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """What else :func:`unskew.load` was asked, such as ``holdout``, where it is not the default."""
    seed: int | None = None
    """What the samples were dealt out by."""
    cut: bool = False
    """Whether the source had been cut down before, so that loading it by name gives other data."""

    def __post_init__(self) -> None:
        for name in ("sizes", "label_counts"):
            values: ArrayLike | None = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, np.asarray(values, np.int64))
        if self.diagnosis is None and self.label_counts is not None:
            object.__setattr__(self, "diagnosis", diagnose_counts(self.label_counts))

    def __str__(self) -> str:
        lines = [f"{self.skew}: what was dealt out, local tests not yet kept back"]
        if self.diagnosis is not None:
            lines.append(str(self.diagnosis))
        if self.dropped:
            lines.append(f"{self.dropped:,} samples went to nobody")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionReport) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def of(
        cls,
        skew: str,
        pool: SamplePool,
        partition: Partition,
        notes: tuple[str, ...] = (),
        options: Mapping[str, Any] | None = None,
        seed: int | None = None,
    ) -> "PartitionReport":
        """Report on a partition; ``notes`` go in front of the partition's own."""
        owned = partition.owner != NOBODY
        cells = partition.owner[owned] * pool.classes + pool.labels[owned]
        counts = np.bincount(cells, minlength=partition.clients * pool.classes)
        return cls(
            skew=skew,
            sizes=partition.sizes,
            label_counts=counts.reshape(partition.clients, pool.classes),
            dropped=partition.dropped,
            notes=(*notes, *partition.notes),
            options=dict(options or {}),
            seed=seed,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "skew": self.skew,
            "sizes": _listed(self.sizes),
            "label_counts": _listed(self.label_counts),
            "dropped": self.dropped,
            "notes": list(self.notes),
            "diagnosis": None if self.diagnosis is None else self.diagnosis.to_dict(),
            "options": dict(self.options),
            "seed": self.seed,
            "cut": self.cut,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "PartitionReport":
        """Undo :meth:`to_dict`, also after a trip through JSON."""
        diagnosis = values.get("diagnosis")
        return cls(
            skew=values["skew"],
            sizes=values["sizes"],
            label_counts=values["label_counts"],
            dropped=values["dropped"],
            notes=tuple(values["notes"]),
            diagnosis=None if diagnosis is None else Diagnosis(**diagnosis),
            options=values.get("options", {}),
            seed=values.get("seed"),
            cut=values.get("cut", False),
        )


def _listed(values: NDArray[np.int64] | None) -> list[Any] | None:
    return None if values is None or len(values) > LISTED else values.tolist()
