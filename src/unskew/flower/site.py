"""A node's own samples, and the federation as it looks from there: everybody else is empty."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.app import Context
from numpy.typing import ArrayLike

from unskew.data.columns import Columns
from unskew.data.federation import Federation
from unskew.errors import UnskewError

Arrays = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]
Data = Federation | Arrays
"""A federation of which the node is one client, or its own x, y and perhaps test x, test y."""
DataOf = Callable[[Context], Data]

_NAMES = ("name", "site", "partition-id")


@dataclass(frozen=True, eq=False)
class Site:
    """What a node holds."""

    name: str
    own: Federation
    """Of one client, this one."""

    @staticmethod
    def of(data: Data | DataOf, context: Context, name: str | None = None) -> "Site":
        """Load a node's samples and find its name."""
        found = data(context) if callable(data) else data
        own = name or _name_of(context)
        if isinstance(found, Federation):
            return Site(own, _client_of(found, context))
        return Site(own, _from_arrays(found))

    def as_client(self, client: int, clients: int, classes: int) -> Federation:
        """Return the federation in which this node is one of many and the others are empty."""
        return replace(
            self.own,
            train=_placed(self.own.train, client, clients),
            test=_placed(self.own.test, client, clients),
            classes=classes,
        )

    def facts(self) -> dict[str, Any]:
        """Return what is told of the samples before anything is trained."""
        own = self.own
        words = 0 if own.vocabulary is None else len(own.vocabulary)
        return {
            "name": self.name,
            "samples": own.train.samples,
            "tests": own.test.samples,
            "shape": list(own.shape),
            "dtype": own.train.x.dtype.str,
            "classes": own.classes,
            "words": words,
        }


def _name_of(context: Context) -> str:
    for key in _NAMES:
        if key in context.node_config:
            return str(context.node_config[key])
    return str(context.node_id)


def _client_of(federation: Federation, context: Context) -> Federation:
    """Return the part of a federation that belongs to the node, by its partition's number."""
    number = context.node_config.get("partition-id")
    if number is None or not 0 <= int(number) < len(federation):
        raise UnskewError(
            f"partition-id must be from 0 to {len(federation) - 1} in the node's config "
            f"(got {number})"
        )
    k = int(number)
    train = Columns.whole(*federation.train.client(k))
    has_test = k < len(federation.test)
    test = Columns.whole(*federation.test.client(k)) if has_test else Columns.empty_like(train)
    return replace(
        federation,
        train=train,
        test=test,
        common=Columns.empty_like(train),
        client_names=None,
        report=None,
    )


def _from_arrays(arrays: Arrays) -> Federation:
    if len(arrays) not in (2, 4):
        raise UnskewError(f"data must be (x, y) or (x, y, test x, test y), not {len(arrays)} items")
    own = Federation.from_arrays(arrays[0], arrays[1])
    if len(arrays) == 2:
        return own
    held = Federation.from_arrays(arrays[2], arrays[3])
    if held.shape != own.shape:
        raise UnskewError(f"data: test samples have shape {held.shape}, the others {own.shape}")
    return replace(own, test=held.train, classes=max(own.classes, held.classes))


def _placed(columns: Columns, client: int, clients: int) -> Columns:
    """Return one client's samples as those of one of many."""
    offsets = np.zeros(clients + 1, np.int64)
    offsets[client + 1 :] = columns.samples
    return Columns(columns.x, columns.y, offsets)
