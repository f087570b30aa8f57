"""Targets of a regression: one value for all samples, and clients with other units."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from unskew.data.quality.findings import Finding, Severity
from unskew.data.quality.naming import client_name, listed

if TYPE_CHECKING:
    from unskew.data.federation import Federation

ONE_VALUE = Finding(
    "error",
    "target",
    "has the same value in all training samples",
    "there is nothing to learn: name another column",
)

LARGEST_TARGETS = 100.0
"""How many times as large as the median client's targets may be before units seem to differ."""


def target_findings(federation: "Federation", doubtful: Severity) -> Iterator[Finding]:
    """Yield findings about targets that are numbers; ``doubtful`` as in :func:`scale_findings`."""
    if not federation.is_regression:
        return
    if federation.has_one_target:
        yield ONE_VALUE
    else:
        yield from _other_units(federation, doubtful)


def _other_units(federation: "Federation", doubtful: Severity) -> Iterator[Finding]:
    train = federation.train
    squares = np.bincount(train.owners(), train.y.astype(np.float64) ** 2, len(federation))
    sizes = np.sqrt(squares / np.maximum(train.sizes, 1))
    known = np.sort(sizes[sizes > 0])
    median = known[(len(known) - 1) // 2]
    large = np.flatnonzero(sizes > LARGEST_TARGETS * median)
    if len(large):
        names = listed(client_name(federation, int(client)) for client in large)
        times = f"{sizes[large].max() / median:.3g} times"
        yield Finding(
            doubtful,
            "target",
            f"is {times} as large as the median client's at {names}",
            "give all clients the same units",
        )
