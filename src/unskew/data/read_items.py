"""Read the items of a dataset: pairs or mappings, with arrays, tensors or PIL images."""

import random
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from unskew.data.columns import Array
from unskew.errors import UnskewError, UnskewWarning

FEATURE_KEYS = ("image", "img", "x", "features", "pixel_values", "input", "inputs", "data", "text")
LABEL_KEYS = ("label", "labels", "y", "target", "fine_label", "class")
"""The keys of items that are mappings, in the order in which they are looked for."""

_READ_TWICE = 16
"""How many items are read twice, to find out whether they are transformed at random."""


_MAX_DISTINCT = 20
"""Whole numbers of another type than integer, such as 1.0, are labels if at most this many are
distinct."""


class Items(Protocol):
    """What torch calls a map-style dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> Any: ...


def read_items(dataset: Items, features: str | None, label: str | None) -> tuple[Array, Array]:
    """Return the features and labels of all items.

    ``features`` and ``label`` are keys of items that are mappings. A warning says if items change
    from one reading to the next, since each is read once.
    """
    pairs = [_pair(dataset[i], features, label) for i in range(len(dataset))]
    if _changes(dataset, pairs, features, label):
        warnings.warn(
            "dataset: its items differ each time they are read, so it has random transforms; they "
            "were applied once, not in each batch, because a federation stores its samples",
            UnskewWarning,
            stacklevel=4,
        )
    try:
        x = np.stack([as_features(each) for each, _ in pairs])
        y = _labels([each for _, each in pairs])
    except (ValueError, TypeError, OverflowError) as error:
        raise UnskewError(
            "dataset must hold at least one pair of features and a number, all of the "
            f"same shape ({error})"
        ) from None
    return x, y


def as_features(value: Any) -> Array:
    """Return features as an array; a PIL image as bytes, channels x height x width."""
    if not is_image(value):
        return np.asarray(value)
    if value.mode not in ("L", "RGB"):
        value = value.convert("L" if value.mode in ("1", "LA") else "RGB")
    pixels = np.asarray(value)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def is_image(value: Any) -> bool:
    """Return whether a value is a PIL image, without importing PIL."""
    return hasattr(value, "convert") and hasattr(value, "mode") and hasattr(value, "getbands")


def label_key(keys: Iterable[str], given: str | None) -> str:
    """Return the key of the label; an error lists the keys."""
    return _key(keys, given, LABEL_KEYS, "label")


def _key(keys: Iterable[str], given: str | None, usual: Sequence[str], what: str) -> str:
    names = list(keys)
    found = given if given is not None else next((key for key in usual if key in names), None)
    if found is None or found not in names:
        missing = f"no {found!r}" if found else f"no {what} under a usual name"
        listed = ", ".join(map(str, names))
        raise UnskewError(f"dataset: has {missing}; set {what} to one of: {listed}")
    return found


def _pair(item: Any, features: str | None, label: str | None) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        of_label = label_key(item, label)
        others = [key for key in item if key != of_label]
        if features is None and len(others) == 1:
            return item[others[0]], item[of_label]
        return item[_key(others, features, FEATURE_KEYS, "features")], item[of_label]
    if features is not None or label is not None:
        raise UnskewError("dataset: its items have no keys; remove features and label")
    try:
        x, y = item
    except (ValueError, TypeError) as error:
        raise UnskewError(
            f"dataset must hold pairs of features and label, or mappings ({error})"
        ) from None
    return x, y


def _labels(labels: Sequence[Any]) -> Array:
    """Return labels as an array; a few whole numbers are integers, whatever their type."""
    array = np.array([each.item() if hasattr(each, "item") else each for each in labels])
    if array.dtype.kind not in "iufb" or array.ndim != 1:
        raise ValueError(f"labels are {array.dtype}")
    whole = array.dtype.kind == "b" or len(np.unique(array)) <= _MAX_DISTINCT
    return array.astype(np.int64) if whole and np.all(array == np.round(array)) else array


def _changes(
    dataset: Items, pairs: Sequence[tuple[Any, Any]], features: str | None, label: str | None
) -> bool:
    """Return whether items are transformed at random; no random numbers are used up."""
    import torch  # noqa: PLC0415 (slow to import)

    states = random.getstate(), np.random.get_state()  # noqa: NPY002 (transforms use it)
    try:
        with torch.random.fork_rng(devices=[]):
            for index in range(min(len(pairs), _READ_TWICE)):
                again, _ = _pair(dataset[index], features, label)
                if not _same(again, pairs[index][0]):
                    return True
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
    return False


def _same(one: Any, other: Any) -> bool:
    a, b = as_features(one), as_features(other)
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
