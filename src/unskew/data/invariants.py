"""What holds for every federation, whether it comes from arrays or from a folder."""

from typing import TYPE_CHECKING

import numpy as np

from unskew.data.columns import Columns, check_finite
from unskew.data.quality.finite import finite_findings
from unskew.errors import UnskewError

if TYPE_CHECKING:
    from unskew.data.federation import Federation

MAX_CLASSES = 1_000_000
"""The largest number of classes; a larger label is an id or a damaged value."""


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
        if (part.y.dtype.kind == "f") != (federation.train.y.dtype.kind == "f"):
            raise UnskewError(
                f"{name} y must be labels or numbers as those of the training samples"
            )
        if part.x.shape[1:] != shape or part.x.dtype != dtype:
            raise UnskewError(
                f"{name}: samples must have the shape {shape} and type {dtype} of the training "
                f"samples (got {part.x.shape[1:]} and {part.x.dtype})"
            )
        expected = 1 if name == "common" else clients
        if len(part) != expected:
            raise UnskewError(f"{name}: has {len(part)} clients instead of {expected}")
    _check_names(federation, clients)
    for finding in finite_findings(federation):
        raise UnskewError(str(finding))
    if federation.vocabulary is not None and dtype == np.int32:
        largest = max(int(part.x.max(initial=0)) for part in parts.values())
        if largest >= len(federation.vocabulary):
            raise UnskewError(
                f"x holds the word {largest}, but the vocabulary has {len(federation.vocabulary)}"
            )


def _check_part(part: Columns, name: str, classes: int) -> None:
    x, y, offsets = part.x, part.y, part.offsets
    if x.dtype not in (np.uint8, np.float32, np.int32):
        raise UnskewError(f"{name} x must be uint8, float32 or int32 (got {x.dtype})")
    is_regression = y.dtype == np.float32
    known = is_regression or (y.dtype.kind in "iu" and y.dtype != np.uint64)
    if y.ndim != 1 or not known or not y.dtype.isnative:
        raise UnskewError(
            f"{name} y must be one integer label, or float32 of a regression, per sample "
            f"(got {y.dtype})"
        )
    if offsets.dtype != np.int64:
        raise UnskewError(f"{name} offsets must be int64 (got {offsets.dtype})")
    labels = np.zeros(0, np.int64) if is_regression else y
    for what, values in (("x", x if x.dtype == np.int32 else labels), ("y", labels)):
        if values.size and values.min() < 0:
            raise UnskewError(f"{name} {what} must be at least 0 (got {values.min()})")
    if is_regression:
        check_finite(y, f"{name} y")
        if classes != 1:
            raise UnskewError(f"classes must be 1 for a regression (got {classes})")
    if labels.size and y.max() >= classes:
        raise UnskewError(
            f"{name} y: labels go up to {y.max()}, but there are {classes} classes, from 0 to "
            f"{classes - 1}"
        )


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
        ("feature_names", federation.feature_names, None),
    ):
        if texts is not None and not all(isinstance(text, str) for text in texts):
            raise UnskewError(f"{field} must be texts")
        if texts is not None and length is not None and len(texts) != length:
            raise UnskewError(f"{field} must be {length}, one per class (got {len(texts)})")
    names_of_features = federation.feature_names
    if names_of_features is not None and federation.shape != (len(names_of_features),):
        raise UnskewError(
            f"feature_names must be one per feature of samples of shape {federation.shape} (got "
            f"{len(names_of_features)})"
        )
