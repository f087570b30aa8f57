"""The clients: one alone, clients without samples or tests, and ids taken for clients."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from unskew.data.quality.findings import Finding, Severity
from unskew.data.quality.naming import client_name, listed
from unskew.utils.wording import plural

if TYPE_CHECKING:
    from unskew.data.federation import Federation

_MANY_CLIENTS = 20
"""With more clients than this, a median of a single sample points to ids in place of clients."""


def client_findings(federation: "Federation", doubtful: Severity) -> Iterator[Finding]:
    """Yield findings about clients and test sets; ``doubtful`` as in :func:`scale_findings`."""
    clients, sizes = len(federation), federation.train.sizes
    if clients == 1:
        yield Finding(
            doubtful,
            "clients",
            "there is one client, so nothing is federated",
            "did you forget --client-column (client= in Python)?",
        )
    if clients > _MANY_CLIENTS and np.median(sizes) <= 1:
        yield Finding(
            doubtful,
            "clients",
            f"most of the {clients:,} clients have one training sample",
            "the column of clients may be an id of rows or persons; name another one",
        )
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        names = listed(client_name(federation, int(client)) for client in empty)
        yield Finding(
            doubtful,
            "clients",
            f"{plural(len(empty), 'client')} without training samples: {names}",
            "remove them, or hold out fewer samples",
        )
    yield from _without_tests(federation, doubtful)


def _without_tests(federation: "Federation", doubtful: Severity) -> Iterator[Finding]:
    if not federation.test.samples and not federation.common.samples:
        yield Finding(
            "warning",
            "test",
            "there are no test samples, so nothing can be evaluated",
            "hold out a share of each client's samples with --holdout 0.2 (holdout= in Python)",
        )
        return
    without = np.flatnonzero(federation.test.sizes == 0)
    if not federation.test.samples or not len(without):
        return
    names = listed(client_name(federation, int(client)) for client in without)
    yield Finding(
        doubtful,
        "test",
        f"{len(without):,} of {plural(len(federation), 'client')} have no test samples: {names}",
        "local and personal metrics leave them out; hold out a larger share of their samples",
    )
