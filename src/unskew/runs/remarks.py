"""Remarks about runs, derived from what their rounds record.

A remark is one line that explains a result its reader would wonder about, such as two methods with
the same accuracy. It comes from diagnostics of the method or from clients that were left out, never
from the name of the method, so it holds for the run it is shown with.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from unskew.utils.wording import joined, plural

Row = Mapping[str, Any]

_FEW_COORDINATES = 0.01
"""Below this share of high-dispersion coordinates, FedSA's rule is hardly more than the mean."""


def remarks_on(rows: Sequence[Row]) -> list[str]:
    """Return the remarks on rounds of one method, given their rows of metrics."""
    found = (remark(rows) for remark in _REMARKS)
    return [text for text in found if text]


def diagnostic(rows: Sequence[Row], name: str) -> Iterator[float]:
    """Yield the values of a diagnostic that is a number.

    A part of a composed method may prefix the names of its diagnostics with its own and a dot.
    """
    for row in rows:
        for key, value in row.get("diagnostics", {}).items():
            if key.rpartition(".")[2] == name and isinstance(value, int | float):
                yield float(value)


def _high_dispersion(rows: Sequence[Row]) -> str:
    shares = list(diagnostic(rows, "high_dispersion"))
    mean = sum(shares) / len(shares) if shares else 1.0
    if mean >= _FEW_COORDINATES:
        return ""
    return f"{100 * mean:.1g} % of the coordinates are high-dispersion: this is nearly the mean"


def _idle_rounds(rows: Sequence[Row]) -> str:
    idle = sum("kept_model" in row for row in rows)
    return f"{idle} of {plural(len(rows), 'round')} left the model as it was" if idle else ""


def _rejected_clients(rows: Sequence[Row]) -> str:
    count = sum("rejected" in row and "kept_model" not in row for row in rows)
    return f"{count} of {plural(len(rows), 'round')} rejected a client's upload" if count else ""


def _changed_members(rows: Sequence[Row]) -> str:
    """Say which clients' tests some of the means over clients are without."""
    absent = [row["not_evaluated"] for row in rows if row.get("not_evaluated")]
    if not absent:
        return ""
    names = joined(sorted({name for each in absent for name in each}))
    return f"means over clients are without {names} in {plural(len(absent), 'evaluation')}"


_REMARKS: tuple[Callable[[Sequence[Row]], str], ...] = (
    _high_dispersion,
    _idle_rounds,
    _rejected_clients,
    _changed_members,
)
