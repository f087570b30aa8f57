"""A node's samples, and the federation as the node sees it: all other clients are empty."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.app import Context
from numpy.typing import ArrayLike

from unskew.data import checks
from unskew.data.columns import Columns
from unskew.data.federation import Federation
from unskew.data.targets import TaskName, target_sums
from unskew.errors import UnskewError
from unskew.flower.node_table import NodeTable, RawSamples

Arrays = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]
Data = Federation | NodeTable | Arrays
"""A federation of which the node is one client, its raw table, or its x, y and test x, test y."""
DataFn = Callable[[Context], Data]

_NAME_KEYS = ("name", "site", "partition-id")
"""The keys of a node's config that may hold its name; the first one present is used."""


@dataclass(frozen=True, eq=False)
class Site:
    """A node's name and its samples."""

    name: str
    data: Federation
    """A federation whose only client is this node."""
    raw: RawSamples | None = None
    """The node's raw table, of which ``data`` holds only the numbers of the rows."""

    @staticmethod
    def of(
        data: Data | DataFn,
        context: Context,
        name: str | None = None,
        task: TaskName | None = None,
    ) -> "Site":
        """Load a node's samples and determine its name."""
        loaded = data(context) if callable(data) else data
        resolved_name = name or name_of(context)
        if isinstance(loaded, NodeTable):
            raw = replace(loaded, task=loaded.task or task).load()
            return Site(resolved_name, raw.placed, raw)
        if isinstance(loaded, Federation):
            return Site(resolved_name, _client_of(loaded, context))
        return Site(resolved_name, _from_arrays(loaded, task))

    @property
    def fingerprint(self) -> str:
        """A hash of the node's samples, which a server cannot change."""
        return self.data.fingerprint if self.raw is None else self.raw.fingerprint

    def as_client(
        self, client: int, clients: int, classes: int, target: tuple[float, float] | None = None
    ) -> Federation:
        """Return the federation in which this node is one of many and the others are empty.

        ``target`` is the mean and standard deviation of all nodes' targets, for a regression.
        """
        return replace(
            self.data,
            train=_columns_at(self.data.train, client, clients),
            test=_columns_at(self.data.test, client, clients),
            classes=classes,
            target_units=target,
        )

    def info(self) -> dict[str, Any]:
        """Return what the node reports about its samples before training starts."""
        data, raw = self.data, self.raw
        info = {
            "name": self.name,
            "samples": data.train.samples,
            "tests": data.test.samples,
            "shape": list(data.shape),
            "dtype": data.train.x.dtype.str,
            "classes": data.classes,
            "words": 0 if data.vocabulary is None else len(data.vocabulary),
            **({"target": list(target_sums(data.train.y))} if data.is_regression else {}),
        }
        if raw is not None:
            info |= {"shape": [len(raw.columns)], "columns": raw.names_hash}
        return info


def name_of(context: Context) -> str:
    """Return the name of a node by its config."""
    for key in _NAME_KEYS:
        if key in context.node_config:
            return str(context.node_config[key])
    return str(context.node_id)


def _client_of(federation: Federation, context: Context) -> Federation:
    """Return the client of a federation that the node's ``partition-id`` selects."""
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


def _from_arrays(arrays: Arrays, task: TaskName | None) -> Federation:
    if len(arrays) not in (2, 4):
        raise UnskewError(f"data must be (x, y) or (x, y, test x, test y), not {len(arrays)} items")
    if checks.are_texts(arrays[0]):
        raise UnskewError(
            "data: texts become tokens of a vocabulary that all nodes share; give the node's table "
            "as NodeTable, which is prepared with the others'"
        )
    train = Federation.from_arrays(arrays[0], arrays[1], task=task)
    if len(arrays) == 2:
        return train
    of_test: TaskName | None = "regression" if train.is_regression else task
    test = Federation.from_arrays(arrays[2], arrays[3], task=of_test)
    if test.shape != train.shape:
        raise UnskewError(
            f"data: test samples have shape {test.shape}, training samples {train.shape}"
        )
    return replace(train, test=test.train, classes=max(train.classes, test.classes))


def _columns_at(columns: Columns, client: int, clients: int) -> Columns:
    """Return one client's samples as those of client number ``client`` out of ``clients``."""
    offsets = np.zeros(clients + 1, np.int64)
    offsets[client + 1 :] = columns.samples
    return Columns(columns.x, columns.y, offsets)
