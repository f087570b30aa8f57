"""Open a source that is a table: a real federation, whose clients a column names."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from unskew.data.columns import Columns
from unskew.data.federation import Federation
from unskew.data.source_info import SourceInfo, TableRoles
from unskew.data.sources import local_file
from unskew.data.targets import TaskName
from unskew.errors import UnskewError
from unskew.partition.report import PartitionReport

HOLDOUT = 0.2
"""The default share of a client's samples that becomes its local test set."""

NATURAL = "natural"
"""The only partition of a table source: each value of its column of clients is a client."""


def open_table_source(
    name: str,
    info: SourceInfo,
    *,
    seed: int,
    holdout: float | None,
    skew: object = None,
    clients: int | None = None,
    label: str | None = None,
    client: str | None = None,
    features: Sequence[str] | None = None,
    task: TaskName | None = None,
    **options: Any,
) -> Federation:
    """Read a fetched table like any other, with the columns that the catalogue names.

    ``label``, ``client`` and ``features`` name other columns; ``options`` are those of
    :meth:`Federation.from_table`. ``skew`` and ``clients`` must be None or describe the clients
    that the table has.
    """
    assert info.table is not None
    if skew not in (None, NATURAL):
        raise UnskewError(f"{name}: has {info.groups} as its clients; remove skew, or use natural")
    share = HOLDOUT if holdout is None else holdout
    prepared = options.get("prepare", "federated") != "federated" or options.get("columns")
    changed = bool(label or client or features or task or prepared)
    if task is None and not info.classes and label in (None, info.table.label):
        task = "regression"
    federation = Federation.from_table(
        local_file(name),
        label=label or info.table.label,
        client=client or info.table.client,
        features=list(features or info.table.features),
        holdout=share,
        seed=seed,
        name=name,
        task=task,
        **options,
    )
    if clients not in (None, len(federation)):
        raise UnskewError(f"{name}: has {len(federation)} clients; remove clients")
    if label in (None, info.table.label) and not federation.is_regression:
        federation = _with_classes(federation, info, info.table)
    return replace(
        federation,
        client_names=_short_names(federation),
        report=replace(
            _report(federation, {} if share == HOLDOUT else {"holdout": share}, seed), cut=changed
        ),
    )


def _with_classes(federation: Federation, info: SourceInfo, roles: TableRoles) -> Federation:
    """Number the labels from 0, and name the classes."""
    if roles.first_label:
        first = roles.first_label
        federation = replace(
            federation,
            train=_shifted(federation.train, first),
            test=_shifted(federation.test, first),
            common=_shifted(federation.common, first),
            classes=federation.classes - first,
        )
    if info.class_names is None or federation.classes != len(info.class_names):
        return federation
    return replace(federation, class_names=info.class_names)


def _shifted(columns: Columns, first: int) -> Columns:
    return replace(columns, y=columns.y - first)


def _short_names(federation: Federation) -> Any:
    """Return clients' names that are numbers with few digits, if that keeps them apart."""
    names = federation.client_names
    if names is None or names.dtype.kind != "U":
        return names
    try:
        short = np.array([f"{float(name):.4g}" for name in names.tolist()])
    except ValueError:
        return names
    return short if len(np.unique(short)) == len(names) else names


def _report(federation: Federation, options: dict[str, Any], seed: int) -> PartitionReport:
    train, test = federation.train, federation.test
    counts = None
    if train.y.dtype.kind in "iu":
        classes = federation.classes
        counts = train.label_counts(classes) + test.label_counts(classes)
    return PartitionReport(NATURAL, train.sizes + test.sizes, counts, 0, options=options, seed=seed)
