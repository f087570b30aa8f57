"""What a run remembers of its federation, so that a report needs no data."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unskew.partition.report import MAX_LISTED_CLIENTS
from unskew.privacy.budget import Privacy
from unskew.privacy.information_bound import information_bound
from unskew.skew.diagnosis import diagnose_counts

if TYPE_CHECKING:
    from unskew.data.federation import Federation

_MOST_COUNTS = 200_000
"""Label counts (clients times classes) beyond this many are not written down."""


def federation_facts(federation: "Federation") -> dict[str, Any]:
    """Return name, sizes, names, label counts and diagnosis as plain values.

    Counts and diagnosis are None where writing down every client would be too much.
    """
    clients = len(federation)
    listed = clients <= MAX_LISTED_CLIENTS and clients * federation.classes <= _MOST_COUNTS
    counts = None
    if listed and federation.has_samples:
        counts = federation.train.label_counts(federation.classes)
    names = federation.client_names if listed else None
    return {
        "name": federation.name,
        "skew": federation.report.skew if federation.report else None,
        "samples": federation.report.options.get("samples") if federation.report else None,
        "options": dict(federation.report.options) if federation.report else {},
        "seed": federation.report.seed if federation.report else None,
        "cut": federation.report is not None and federation.report.cut,
        "clients": clients,
        "train": federation.train.samples,
        "test": federation.test.samples,
        "common": federation.common.samples,
        "classes": federation.classes,
        "class_names": None if federation.class_names is None else list(federation.class_names),
        "client_names": None if names is None else [str(name) for name in names],
        "label_counts": None if counts is None else counts.tolist(),
        "diagnosis": None if counts is None else diagnose_counts(counts).to_dict(),
    }


def density_facts(
    federation: "Federation", budgets: Sequence[Privacy | None]
) -> dict[str, dict[str, Any]]:
    """Return what clients' densities tell of them at most, and the budgets that were kept."""
    kappa = information_bound(federation.train.sizes)
    return {
        "densities": {
            "kappa_mean": float(kappa.mean()),
            "kappa_max": float(kappa.max()),
            "clients": len(kappa),
            "budgets": [None if budget is None else str(budget) for budget in budgets],
        }
    }
