"""Labels: targets that are not classes, empty classes, clients with one class or without tests."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unskew.data.preprocessing.labels import spelled_otherwise
from unskew.data.quality.findings import Finding, Severity
from unskew.data.quality.naming import class_name, client_name, listed
from unskew.data.quality.targets import ONE_VALUE
from unskew.utils.wording import plural

if TYPE_CHECKING:
    from unskew.data.federation import Federation

_MANY_CLASSES, _FEW_SAMPLES = 20, 10
"""A target with more classes than this, and fewer samples per class, is taken for a quantity.

So are many whole numbers of which most are missing.
"""

_MAX_CELLS = 50_000_000
"""Classes per client are counted if there are at most this many pairs of them."""


def label_findings(federation: "Federation", doubtful: Severity) -> Iterator[Finding]:
    """Yield findings about labels that are classes; ``doubtful`` as in :func:`scale_findings`."""
    if federation.train.y.dtype.kind not in "iu":
        return
    if federation.has_one_target:
        yield ONE_VALUE
        return
    present = np.bincount(federation.train.y, minlength=federation.classes) > 0
    continuous = list(_continuous(federation, int(present.sum()))) if doubtful != "note" else []
    yield from continuous
    if continuous:  # a quantity has no classes that could be empty
        return
    yield from _spellings(federation, doubtful)
    yield from _empty_classes(federation, np.flatnonzero(~present), doubtful)
    if len(federation) > 1 and len(federation) * federation.classes <= _MAX_CELLS:
        yield from _single_classes(federation, doubtful)


def _continuous(federation: "Federation", present: int) -> Iterator[Finding]:
    samples, sparse = federation.train.samples, present < federation.classes / 2
    if present <= _MANY_CLASSES or not (sparse or samples < _FEW_SAMPLES * present):
        return
    fractional = _fractional(federation.class_names or ())
    yield Finding(
        "error" if fractional else "warning",
        "target",
        f"has {present:,} classes for {samples:,} training samples"
        + (f", with names such as {fractional!r}" if fractional else ""),
        "it looks like a quantity or an id: set --task regression (task= in Python), or name a "
        "column of classes with --label-column (label=)",
    )


def _fractional(names: tuple[str, ...]) -> str:
    """Return a name with a fraction if all names are numbers, otherwise an empty text."""
    try:
        values = np.array(names, float)
    except ValueError:
        return ""
    fractions = np.flatnonzero(np.isfinite(values) & (values != np.round(values)))
    return names[fractions[0]] if len(fractions) else ""


def _empty_classes(
    federation: "Federation", empty: NDArray[np.int64], severity: Severity
) -> Iterator[Finding]:
    if not len(empty):
        return
    tests = np.concatenate([federation.test.y, federation.common.y])
    untrained = np.intersect1d(empty, tests)
    names = listed(class_name(federation, int(label)) for label in empty)
    text = f"{names} {'has' if len(empty) == 1 else 'have'} no training samples"
    if len(untrained):
        count = int(np.isin(tests, untrained).sum())
        text += f", but {plural(count, 'test sample')}"
    fix = "number the labels from 0 without gaps, or set classes= to the classes that there are"
    yield Finding(severity, "classes", text, fix)


def _spellings(federation: "Federation", severity: Severity) -> Iterator[Finding]:
    """Yield the clients that seem to call classes otherwise than the others."""
    names = federation.class_names
    if names is None or len(federation) < 2 or len(federation) * federation.classes > _MAX_CELLS:
        return
    counts = federation.train.label_counts(federation.classes)
    held = {k: [names[c] for c in np.flatnonzero(row)] for k, row in enumerate(counts)}
    for client, reason in spelled_otherwise(held).items():
        fix = "give every class one name"
        yield Finding(severity, client_name(federation, client), reason, fix)


def _single_classes(federation: "Federation", severity: Severity) -> Iterator[Finding]:
    held = (federation.train.label_counts(federation.classes) > 0).sum(axis=1)
    single = np.flatnonzero(held == 1)
    if not len(single) or (held > 0).sum() < 2:
        return
    names = listed(client_name(federation, int(client)) for client in single)
    yield Finding(
        severity,
        "clients",
        f"{len(single):,} of {plural(len(federation), 'client')} hold samples of a single class: "
        f"{names}",
        "check their labels; if they are right, this is label skew, and metrics such as AUC are "
        "undefined for these clients",
    )
