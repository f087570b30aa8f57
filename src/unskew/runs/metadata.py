"""The metadata that a run records about its federation, so that a report does not need the data."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from unskew.partition.report import MAX_LISTED_CLIENTS
from unskew.privacy.budget import Privacy
from unskew.privacy.information_bound import information_bound
from unskew.skew.diagnosis import diagnose_counts

if TYPE_CHECKING:
    from unskew.data.federation import Federation

_MAX_COUNTS = 200_000
"""Label counts are not recorded if there are more than this many (clients times classes)."""


_known: "WeakKeyDictionary[Federation, dict[str, Any]]" = WeakKeyDictionary()
"""The metadata of federations that are in use, since the runs of a seed share theirs."""


def federation_metadata(federation: "Federation") -> dict[str, Any]:
    """Return name, sizes, names, label counts and diagnosis as plain values.

    Counts and diagnosis are None for federations too large to record every client. The diagnosis of
    a regression is that of quantile bins of its target; it has no label counts.
    """
    if federation not in _known:
        _known[federation] = _federation_metadata(federation)
    return dict(_known[federation])


def _federation_metadata(federation: "Federation") -> dict[str, Any]:
    clients = len(federation)
    listed = clients <= MAX_LISTED_CLIENTS and clients * federation.classes <= _MAX_COUNTS
    counts, diagnosis = None, None
    if listed and federation.has_samples:
        binned = federation.with_target_bins()
        counts = binned.train.label_counts(binned.classes)
        diagnosis = diagnose_counts(counts).to_dict()
    names = federation.client_names if listed else None
    majority = _majority(federation) if listed and federation.has_samples else {}
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
        "label_counts": None if counts is None or federation.is_regression else counts.tolist(),
        "majority": majority,
        "diagnosis": diagnosis,
    }


def _majority(federation: "Federation") -> dict[str, float]:
    """Return the best accuracy of a constant prediction, on each level that has test samples."""
    found: dict[str, float] = {}
    if federation.is_regression:
        return found
    for level, part in (("global", federation.common), ("local", federation.test)):
        if part.samples and part.y.dtype.kind in "iu":
            counts = part.label_counts(federation.classes)[part.sizes > 0]
            shares = counts / counts.sum(axis=1, keepdims=True)
            found[level] = float(shares.mean(axis=0).max())
    return found


def density_metadata(
    federation: "Federation", budgets: Sequence[Privacy | None]
) -> dict[str, dict[str, Any]]:
    """Return bounds on the information that clients' densities reveal, and the privacy budgets."""
    kappa = information_bound(federation.train.sizes)
    return {
        "densities": {
            "kappa_mean": float(kappa.mean()),
            "kappa_max": float(kappa.max()),
            "clients": len(kappa),
            "budgets": [None if budget is None else str(budget) for budget in budgets],
        }
    }
