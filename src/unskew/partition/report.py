"""The result of a partitioner: the data distribution over clients, and how skewed it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.errors import UnskewError
from unskew.partition.base import NO_CLIENT, Partition, SamplePool
from unskew.skew.diagnosis import Diagnosis, diagnose_counts
from unskew.skew.html import distribution_html
from unskew.utils.html import html_block, html_heading, html_line

MAX_LISTED_CLIENTS = 10_000
"""A report of more clients is saved with its diagnosis only, without one entry per client."""


@dataclass(frozen=True, eq=False)
class PartitionReport:
    """Sizes, label counts, dropped samples, notes and diagnosis of one partition.

    It describes the samples as they were partitioned, before local test sets are held out.
    ``sizes`` and ``label_counts`` (clients x classes) are arrays; they are None in a report of
    more than ``MAX_LISTED_CLIENTS`` clients that was read from a file.
    """

    skew: str
    sizes: NDArray[np.int64] | None
    label_counts: NDArray[np.int64] | None
    dropped: int
    notes: tuple[str, ...] = ()
    diagnosis: Diagnosis | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The other options of :func:`unskew.load`, such as ``holdout``, that are not the default."""
    seed: int | None = None
    """The seed of the partition."""
    cut: bool = False
    """Whether loading the source by name gives other data: only a part of it was partitioned, or it
    was opened with options of other kinds, such as the columns of a table."""

    def __post_init__(self) -> None:
        for name in ("sizes", "label_counts"):
            values: ArrayLike | None = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, np.asarray(values, np.int64))
        if self.diagnosis is None and self.label_counts is not None:
            object.__setattr__(self, "diagnosis", diagnose_counts(self.label_counts))

    def __str__(self) -> str:
        lines = [f"{self.skew}: the partition before local test sets are held out"]
        if self.diagnosis is not None:
            lines.append(str(self.diagnosis))
        if self.dropped:
            lines.append(f"{self.dropped:,} samples were dropped")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        known = "" if self.diagnosis is None else (
            f", clients={self.diagnosis.clients}, label_skew={self.diagnosis.label_skew:.3f}"
        )  # fmt: skip
        return f"PartitionReport({self.skew!r}{known}, dropped={self.dropped})"

    def _repr_html_(self) -> str:
        dropped = f"{self.dropped:,} samples were dropped." if self.dropped else ""
        return html_block(
            html_heading(f"{self.skew}: the partition before local test sets are held out"),
            "" if self.label_counts is None else distribution_html(self.label_counts),
            "" if self.diagnosis is None else self.diagnosis._repr_html_(),
            *(html_line(text) for text in (dropped, *self.notes) if text),
        )

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
        """Report on a partition; ``notes`` precede the partition's notes."""
        owned = partition.owner != NO_CLIENT
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

    def check(self, clients: int, classes: int) -> None:
        """Raise if a report that was read from a file is not one of these clients and classes."""
        sizes, counts = self.sizes, self.label_counts
        if sizes is not None and (sizes.shape != (clients,) or sizes.min(initial=0) < 0):
            raise UnskewError(f"report: sizes must be {clients} numbers of at least 0")
        if counts is not None and (counts.shape != (clients, classes) or counts.min(initial=0) < 0):
            raise UnskewError(f"report: label_counts must be {clients} x {classes} counts")
        texts = (self.skew, *self.notes)
        numbers = () if self.diagnosis is None else self.diagnosis.to_dict().values()
        if not all(isinstance(text, str) for text in texts):
            raise UnskewError("report: skew and notes must be texts")
        if not all(value is None or _is_number(value) for value in (*numbers, self.seed)):
            raise UnskewError("report: diagnosis and seed must be numbers")
        if type(self.dropped) is not int or not isinstance(self.options, Mapping):
            raise UnskewError("report: dropped must be a count, and options a table")

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
        """Build a report from the values of :meth:`to_dict`, which may have been JSON."""
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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _listed(values: NDArray[np.int64] | None) -> list[Any] | None:
    return None if values is None or len(values) > MAX_LISTED_CLIENTS else values.tolist()
