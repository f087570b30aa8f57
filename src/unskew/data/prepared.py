"""From raw columns to the features of a federation: fitted on training samples, applied to all.

The rows are first divided among clients, training and test as any other samples; their numbers
are then replaced by features.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.columns import Array, Columns
from unskew.data.preprocessing.cells import Column
from unskew.data.preprocessing.declared import Declared
from unskew.data.preprocessing.fitted import Preprocessing, prepare_clients
from unskew.data.preprocessing.labels import Classes, describe_labels
from unskew.data.preprocessing.spec import Prepare
from unskew.errors import UnskewError

if TYPE_CHECKING:
    from unskew.data.federation import Federation

RawColumns = Mapping[str, Column]


def row_numbers(rows: int) -> NDArray[np.int32]:
    """Return placeholders for features: the number of each row."""
    return np.arange(rows, dtype=np.int32)[:, None]


def with_features(
    placed: "Federation",
    columns: RawColumns,
    prepare: Prepare,
    declared: Mapping[str, Declared],
    *,
    where: str,
    seed: int,
    class_names: tuple[str, ...] = (),
    common: tuple[RawColumns, Array] | None = None,
) -> "Federation":
    """Return a federation of row numbers with the features of these rows.

    ``class_names`` is empty if labels are numbers. ``common`` holds the columns and labels of test
    samples that belong to no client.
    """
    unknown = [name for name in declared if name not in columns]
    if unknown:
        raise UnskewError(f"columns: {unknown[0]!r} is not a feature column of {where}")
    preprocessing = prepare_clients(
        _columns_of_clients(placed.train, columns),
        prepare,
        declared,
        where=where,
        seed=seed,
        labels=() if placed.is_regression else _labels_of_clients(placed, class_names),
        classes=None if placed.is_regression else Classes(placed.classes, class_names or None),
        client_names=_client_names(placed),
    )
    lenient = prepare.budget is not None  # there, nobody has looked at the training samples
    x_train, x_test = (
        _features(part, columns, preprocessing, what, lenient=lenient)
        for part, what in ((placed.train, where), (placed.test, f"{where}, test samples"))
    )
    return replace(
        placed,
        train=replace(placed.train, x=x_train),
        test=replace(placed.test, x=x_test),
        common=_common(common, preprocessing, placed, x_train),
        vocabulary=preprocessing.transform.vocabulary,
        feature_names=tuple(preprocessing.transform.feature_names) or None,
        preprocessing=preprocessing,
    )


def _client_names(placed: "Federation") -> list[str]:
    """Return what errors call the clients; nothing for a single one."""
    names = range(len(placed)) if placed.client_names is None else placed.client_names
    return [f"client {name}" for name in names] if len(placed) > 1 else []


def _columns_of_clients(part: Columns, columns: RawColumns) -> list[dict[str, Column]]:
    rows = part.x[:, 0].astype(np.int64)
    return [
        {name: column.take(rows[start:end]) for name, column in columns.items()}
        for start, end in zip(part.offsets[:-1], part.offsets[1:], strict=True)
    ]


def _labels_of_clients(placed: "Federation", class_names: tuple[str, ...]) -> list[list[Any]]:
    """Return the labels that each client has, as it would send them."""
    names = np.array(class_names)
    labels = (
        np.concatenate([placed.train.client(k)[1], placed.test.client(k)[1]])
        for k in range(len(placed))
    )
    return [describe_labels(names[each] if class_names else each) for each in labels]


def _features(
    part: Columns, columns: RawColumns, preprocessing: Preprocessing, where: str, *, lenient: bool
) -> NDArray[Any]:
    if not preprocessing.own:
        rows = part.x[:, 0].astype(np.int64)
        taken = {name: column.take(rows) for name, column in columns.items()}
        return preprocessing.transform.apply(taken, where, lenient=lenient)
    clients = _columns_of_clients(part, columns)
    return np.concatenate(
        [
            own.apply(taken, where, lenient=lenient)
            for own, taken in zip(preprocessing.own, clients, strict=True)
        ]
    )


def _common(
    common: tuple[RawColumns, Array] | None,
    preprocessing: Preprocessing,
    placed: "Federation",
    like: Array,
) -> Columns:
    if common is None:
        return Columns.whole(like[:0], placed.train.y[:0])
    if preprocessing.own:
        raise UnskewError(
            "common: with prepare=local every client has its own scale, and these samples belong "
            "to none; use prepare=federated"
        )
    columns, labels = common
    return Columns.whole(preprocessing.transform.apply(columns, "common"), labels)
