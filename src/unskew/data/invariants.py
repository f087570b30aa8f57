"""What holds for every federation, whether it comes from arrays or from a folder."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from unskew.data.columns import Array, Columns
from unskew.errors import UnskewError

if TYPE_CHECKING:
    from unskew.data.federation import Federation

MAX_CLASSES = 1_000_000
"""The largest number of classes; a larger label is an id or a damaged value."""

_BLOCK_BYTES = 2**24


def check_federation(federation: "Federation") -> None:
    """Raise an error that names the array and the problem unless a federation can be trained on."""
    parts = {name: getattr(federation, name) for name in ("train", "test", "common")}
    clients, shape, dtype = len(federation.train), federation.shape, federation.train.x.dtype
    if clients < 1 or not federation.train.samples:
        raise UnskewError("train must hold at least one client and one sample")
    if 0 in shape:
        raise UnskewError(f"x must have at least one feature per sample (got shape {shape})")
    if isinstance(federation.classes, bool) or not isinstance(federation.classes, int):
        raise UnskewError(f"classes must be a whole number (got {federation.classes!r})")
    if not 1 <= federation.classes <= MAX_CLASSES:
        raise UnskewError(
            f"classes must be from 1 to {MAX_CLASSES:,} (got {federation.classes:,}); number the "
            "labels from 0"
        )
    for name, part in parts.items():
        _check_part(part, name, federation.classes)
        if part.x.shape[1:] != shape or part.x.dtype != dtype:
            raise UnskewError(
                f"{name}: samples must have the shape {shape} and type {dtype} of the training "
                f"samples (got {part.x.shape[1:]} and {part.x.dtype})"
            )
        expected = 1 if name == "common" else clients
        if len(part) != expected:
            raise UnskewError(f"{name}: has {len(part)} clients instead of {expected}")
    _check_names(federation, clients)
    if federation.vocabulary is not None and dtype == np.int32:
        largest = max(int(part.x.max(initial=0)) for part in parts.values())
        if largest >= len(federation.vocabulary):
            raise UnskewError(
                f"x holds the word {largest}, but the vocabulary has {len(federation.vocabulary)}"
            )


def check_finite(x: Array, field: str) -> None:
    """Raise if features are NaN or infinite, with the number of each."""
    if x.dtype.kind != "f":
        return
    if all(bool(np.isfinite(block).all()) for block in _blocks(x)):
        return
    nan = sum(int(np.isnan(block).sum()) for block in _blocks(x))
    infinite = sum(int(np.isinf(block).sum()) for block in _blocks(x))
    found = [f"{count:,} {what}" for count, what in ((nan, "NaN"), (infinite, "infinite")) if count]
    raise UnskewError(
        f"{field} has values that are not finite numbers ({' and '.join(found)} of {x.size:,}); "
        "replace them or remove their samples"
    )


def _check_part(part: Columns, name: str, classes: int) -> None:
    x, y, offsets = part.x, part.y, part.offsets
    if x.dtype not in (np.uint8, np.float32, np.int32):
        raise UnskewError(f"{name} x must be uint8, float32 or int32 (got {x.dtype})")
    if y.ndim != 1 or y.dtype.kind not in "iu" or not y.dtype.isnative or y.dtype == np.uint64:
        raise UnskewError(f"{name} y must be one integer label per sample (got {y.dtype})")
    if offsets.dtype != np.int64:
        raise UnskewError(f"{name} offsets must be int64 (got {offsets.dtype})")
    for what, values in (("x", x if x.dtype == np.int32 else y), ("y", y)):
        if values.size and values.min() < 0:
            raise UnskewError(f"{name} {what} must be at least 0 (got {values.min()})")
    if y.size and y.max() >= classes:
        raise UnskewError(
            f"{name} y: labels go up to {y.max()}, but there are {classes} classes, from 0 to "
            f"{classes - 1}"
        )
    check_finite(x, f"{name} x")


def _check_names(federation: "Federation", clients: int) -> None:
    if not isinstance(federation.name, str):
        raise UnskewError(f"name must be text (got {federation.name!r})")
    names = federation.client_names
    if names is not None and (names.shape != (clients,) or names.dtype.kind not in "Uiuf"):
        raise UnskewError(
            f"client_names must be {clients} numbers or texts (got {names.dtype} of shape "
            f"{names.shape})"
        )
    for field, texts, length in (
        ("class_names", federation.class_names, federation.classes),
        ("vocabulary", federation.vocabulary, None),
    ):
        if texts is not None and not all(isinstance(text, str) for text in texts):
            raise UnskewError(f"{field} must be texts")
        if texts is not None and length is not None and len(texts) != length:
            raise UnskewError(f"{field} must be {length}, one per class (got {len(texts)})")


def _blocks(x: Array) -> Iterator[Array]:
    """Yield the rows of an array in blocks, so that a mapped file is never in memory at once."""
    rows = max(1, _BLOCK_BYTES // max(1, x[:1].nbytes))
    starts: Sequence[int] = range(0, len(x) + rows, rows)
    for start, end in pairwise(starts):
        yield x[start:end]
