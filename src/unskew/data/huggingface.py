"""Federations from datasets of Hugging Face, and from the partitioners of flwr-datasets.

Both are used through their methods alone, so neither package is imported.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.data.columns import Array
from unskew.data.read_items import FEATURE_KEYS, as_features, label_key
from unskew.errors import UnskewError
from unskew.utils.wording import plural

if TYPE_CHECKING:
    from unskew.data.federation import Federation


def huggingface_federation(
    make: "Callable[..., Federation]",
    dataset: Any,
    client: Any,
    label: str | None,
    features: str | Sequence[str] | None,
    options: dict[str, Any],
) -> "tuple[Federation, tuple[str, ...] | None]":
    """Return a federation and the names of its classes.

    The arguments are those of :meth:`Federation.from_huggingface`; ``make`` is
    :meth:`Federation.from_arrays`.
    """
    common = None
    if isinstance(dataset, Mapping):
        if "train" not in dataset or set(dataset) - {"train", "test"}:
            splits = ", ".join(map(str, dataset))
            raise UnskewError(f"dataset: has the splits {splits}; pass one of them: dataset['…']")
        dataset, common = dataset["train"], dataset.get("test")
    parts, owners = _parts(dataset, client)
    names = list(parts[0].column_names)
    roles = [client] if isinstance(client, str) else []
    label = label_key([name for name in names if name not in roles], label)
    chosen = _feature_columns(names, [*roles, label], features)
    x = np.concatenate([_features(part, chosen) for part in parts])
    y, class_names = _labels([part[label] for part in parts], _declared_names(parts[0], label))
    if common is not None:
        tests, _ = _labels([common[label]], class_names)
        options = {**options, "common": (_features(common, chosen), tests)}
    return make(x, y, owners, **options), class_names


def _parts(dataset: Any, client: Any) -> tuple[list[Any], Any]:
    """Return the dataset, or its partitions, and the client of each sample."""
    if hasattr(client, "load_partition"):
        if not client.is_dataset_assigned():
            client.dataset = dataset
        parts = [client.load_partition(i) for i in range(client.num_partitions)]
        names = getattr(client, "partition_id_to_natural_id", None) or range(len(parts))
        ids = [names[i] for i in range(len(parts))]
        return parts, np.repeat(ids, [len(part) for part in parts])
    if isinstance(client, str):
        if client not in dataset.column_names:
            names = ", ".join(dataset.column_names)
            raise UnskewError(f"client: the dataset has no column {client!r}; it has: {names}")
        return [dataset], np.asarray(dataset[client])
    return [dataset], client


def _feature_columns(
    names: Sequence[str], roles: Sequence[str], features: str | Sequence[str] | None
) -> list[str]:
    others = [name for name in names if name not in roles]
    if features is None:
        usual = next((name for name in FEATURE_KEYS if name in others), None)
        chosen = others if usual is None else [usual]
    else:
        chosen = [features] if isinstance(features, str) else list(features)
    if not chosen:
        raise UnskewError("dataset: has no columns left for features")
    missing = [name for name in chosen if name not in others]
    if missing:
        raise UnskewError(
            f"features: the dataset has no column {missing[0]!r}; it has: {', '.join(others)}"
        )
    return chosen


def _features(dataset: Any, columns: Sequence[str]) -> Array:
    """Return one column as it is, such as images, or several columns of numbers as a table."""
    if len(columns) == 1:
        values = [as_features(value) for value in dataset[columns[0]]]
        try:
            array = np.stack(values)
        except ValueError as error:
            raise UnskewError(
                f"dataset: the values of {columns[0]!r} must have the same shape ({error})"
            ) from None
        return array[:, None] if array.ndim == 1 and array.dtype.kind in "fiub" else array
    table = [np.asarray(dataset[name]) for name in columns]
    for name, column in zip(columns, table, strict=True):
        if column.ndim != 1 or column.dtype.kind not in "fiub":
            raise UnskewError(
                f"dataset: column {name!r} must hold one number per sample; set features to one "
                "column, or to columns of numbers"
            )
    return np.stack(table, axis=1)


def _labels(
    columns: Sequence[Any], names: tuple[str, ...] | None
) -> tuple[Array, tuple[str, ...] | None]:
    """Return integer labels, and the names of the classes if labels are texts or have names."""
    labels = np.concatenate([np.asarray(column) for column in columns])
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "UO":
        return labels, names
    missing = sum(label is None for label in labels.tolist())
    if missing:
        raise UnskewError(f"dataset: {plural(missing, 'sample')} without a label; remove them")
    texts = labels.astype(str)
    known = tuple(np.unique(texts).tolist()) if names is None else names
    numbers = {name: number for number, name in enumerate(known)}
    unknown = [text for text in texts.tolist() if text not in numbers]
    if unknown:
        raise UnskewError(f"dataset: no training sample has the label {unknown[0]!r}")
    return np.array([numbers[text] for text in texts.tolist()]), known


def _declared_names(dataset: Any, label: str) -> tuple[str, ...] | None:
    """Return the class names that the dataset declares for its labels."""
    declared = getattr(dataset, "features", None)
    of_label = declared.get(label) if isinstance(declared, Mapping) else None
    names = getattr(of_label, "names", None)
    return None if names is None else tuple(map(str, names))
