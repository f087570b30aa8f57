"""Federations of tables and texts, built by the function that builds them from arrays."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from unskew.data import checks
from unskew.data.columns import Array
from unskew.data.prepared import RawColumns, row_numbers, with_features
from unskew.data.preprocessing.cells import Column
from unskew.data.preprocessing.declared import Declared, declared_columns
from unskew.data.preprocessing.spec import FederatedPrepare, NoPrepare, Prepare, parse_prepare
from unskew.data.read_once import read_once
from unskew.data.read_tables import TableLike
from unskew.data.readers import TableSamples, read_table
from unskew.data.targets import TaskName, as_targets
from unskew.errors import UnskewError

if TYPE_CHECKING:
    from unskew.data.federation import Federation

_TEXT = "text"
"""The name of the column of texts that have none."""


FromArrays = Callable[..., "Federation"]
"""The constructor :meth:`Federation.from_arrays`."""


def table_federation(
    make: FromArrays,
    table: TableLike,
    *,
    label: str,
    client: str | None,
    features: Sequence[str] | None,
    prepare: str | Prepare | NoPrepare,
    columns: Mapping[str, Any] | str | None,
    common: TableLike | None,
    options: dict[str, Any],
) -> "Federation":
    """Read and prepare a table; the arguments are those of :meth:`Federation.from_table`."""
    chosen, declared = parse_prepare(prepare), declared_columns(columns)
    task: TaskName | None = options.get("task")
    samples = _read(table, label, client, features, task)
    options = {"name": samples.table.name, **options}
    tests = None
    if common is not None:
        like: TaskName | None = "regression" if samples.y.dtype.kind == "f" else task
        tests = read_table(common, label=label, features=samples.features, task=like, what="common")
    if isinstance(chosen, NoPrepare):
        if declared:
            raise UnskewError("columns: with prepare=none, columns are used as they are")
        federation = _unprepared(make, samples, tests, options)
    else:
        names = samples.features
        federation = _prepared(
            make,
            samples.table.cells(names),
            samples.y,
            samples.client,
            None if tests is None else (tests.table.cells(names), tests.labels_like(samples)),
            prepare=chosen,
            declared=declared,
            class_names=samples.class_names,
            where=samples.table.where,
            options=options,
        )
    # With the option ``classes`` there may be classes without samples, whose names are unknown.
    if len(samples.class_names) != federation.classes:
        return federation
    return replace(federation, class_names=samples.class_names)


def text_federation(
    make: FromArrays,
    x: ArrayLike,
    y: ArrayLike,
    client: ArrayLike | None,
    common: tuple[ArrayLike, ArrayLike] | None,
    options: dict[str, Any],
) -> "Federation":
    """Build a federation from texts: a table whose only column holds text."""
    targets, tests = as_targets(y, "y", options["task"]), None
    if common is not None:
        texts, labels = checks.pair(common)
        task: TaskName | None = "regression" if targets.dtype.kind == "f" else options["task"]
        tests = _text_column(texts, "common[0]"), as_targets(labels, "common[1]", task)
    return _prepared(
        make,
        _text_column(x, "x"),
        targets,
        client,
        tests,
        prepare=FederatedPrepare(),
        declared={_TEXT: Declared("text")},
        class_names=(),
        where="x",
        options=options,
    )


def _read(
    table: TableLike,
    label: str,
    client: str | None,
    features: Sequence[str] | None,
    task: TaskName | None,
) -> TableSamples:
    """Read a table; a file is read once for all seeds of a comparison."""

    def read() -> TableSamples:
        return read_table(table, label=label, client=client, features=features, task=task)

    if not isinstance(table, str | Path):
        return read()
    return read_once(read, ("y",), "table", table, label, client, features, task)


def _unprepared(
    make: FromArrays, samples: TableSamples, tests: TableSamples | None, options: dict[str, Any]
) -> "Federation":
    pair = None
    if tests is not None:
        pair = tests.table.numbers(samples.features), tests.labels_like(samples)
    x = samples.table.numbers(samples.features)
    federation = make(x, samples.y, samples.client, common=pair, **options)
    return replace(federation, feature_names=tuple(samples.features))


def _prepared(
    make: FromArrays,
    columns: RawColumns,
    y: Array,
    client: ArrayLike | None,
    common: tuple[RawColumns, Array] | None,
    *,
    prepare: Prepare,
    declared: Mapping[str, Declared],
    class_names: tuple[str, ...],
    where: str,
    options: dict[str, Any],
) -> "Federation":
    """Divide the rows among clients and test sets, then prepare their columns."""
    if common is not None and y.dtype.kind != "f" and options.get("classes") is None:
        found = int(max(y.max(initial=0), common[1].max(initial=0))) + 1
        options = {**options, "classes": found}
    rows = row_numbers(len(next(iter(columns.values()))))
    placed = make(rows, y, client, tokens=True, **options)
    return with_features(
        placed,
        columns,
        prepare,
        declared,
        where=where,
        seed=int(options.get("seed", 0)),
        class_names=class_names,
        common=common,
    )


def _text_column(texts: ArrayLike, field: str) -> dict[str, Column]:
    array = np.asarray(texts, object)
    if array.ndim != 1 or not all(isinstance(text, str | None) for text in array.tolist()):
        raise UnskewError(f"{field} must hold texts only, one per sample")
    return {_TEXT: Column.of(array)}
