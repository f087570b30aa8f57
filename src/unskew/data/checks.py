"""Check the arrays that users pass, and convert them to the types that a federation stores."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.data.columns import Array
from unskew.data.invariants import MAX_CLASSES
from unskew.errors import UnskewError


def features(x: ArrayLike, field: str, *, tokens: bool = False) -> Array:
    """Return features unchanged if their type is compact, otherwise as float32.

    With ``tokens``, integers are words of a vocabulary and become int32.
    """
    array = as_array(x, field)
    if array.ndim == 0:
        raise UnskewError(f"{field} must have one row per sample (got a single value)")
    if tokens and array.dtype.kind in "iu":
        if array.size and (array.min() < 0 or array.max() > np.iinfo(np.int32).max):
            raise UnskewError(f"{field} must hold tokens from 0 to {np.iinfo(np.int32).max}")
        return array.astype(np.int32, copy=False)
    if array.dtype in (np.uint8, np.float32):
        return array
    if array.dtype.kind in "fiub":
        with np.errstate(over="ignore"):  # a number too large for float32 is reported as infinite
            return array.astype(np.float32)
    raise UnskewError(
        f"{field} must hold numbers, not {array.dtype}; a table with categories, dates or gaps is "
        "read by Federation.from_table"
    )


def are_texts(x: ArrayLike) -> bool:
    """Return whether samples are texts: one string each."""
    first: object = None
    if isinstance(x, np.ndarray):
        first = x[0] if x.ndim == 1 and len(x) else None
    elif isinstance(x, Sequence) and len(x):
        first = x[0]
    elif hasattr(x, "iloc"):  # a column of a DataFrame
        first = next(iter(np.asarray(x)), None)
    return isinstance(first, str)


def pair(common: object) -> tuple[ArrayLike, ArrayLike]:
    """Return the common test samples, which must be a pair of features and labels."""
    if not isinstance(common, tuple | list) or len(common) != 2:
        raise UnskewError("common must be a pair (x, y) of test samples")
    return common[0], common[1]


def labels(y: ArrayLike, field: str) -> Array:
    """Return one integer label per sample, in its own type if that fits into int64."""
    array = as_array(y, field)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UnskewError(
            f"{field} must be one integer label per sample "
            f"(got {array.dtype} of shape {array.shape})"
        )
    if array.size and array.min() < 0:
        raise UnskewError(f"{field} must hold labels of at least 0 (got {array.min()})")
    if array.size and array.max() >= MAX_CLASSES:
        raise UnskewError(
            f"{field} must hold labels below {MAX_CLASSES:,}, counted from 0 (got {array.max()}); "
            "number the classes"
        )
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    # The sum of int64 and uint64 is float64 in numpy, which cannot be an index.
    return array.astype(np.int64) if array.dtype == np.uint64 else array


def owners(client: ArrayLike | None, samples: int) -> tuple[Array | None, NDArray[np.int64]]:
    """Return the clients' names and the number of each sample's client, counted from 0.

    The names are None if they are the numbers themselves.
    """
    if client is None:
        return None, np.zeros(samples, np.int64)
    ids = as_array(client, "client")
    if ids.ndim != 1:
        raise UnskewError(f"client must be one id per sample (got shape {ids.shape})")
    if ids.dtype.kind not in "OUSiufb":
        raise UnskewError(f"client must be numbers or texts (got {ids.dtype})")
    if ids.dtype.kind == "f" and not np.isfinite(ids).all():
        bad = int((~np.isfinite(ids)).sum())
        raise UnskewError(f"client must be one id per sample, but {bad:,} are not finite")
    if ids.dtype.kind == "S":
        ids = np.char.decode(ids, "utf-8", "backslashreplace")
    if ids.dtype.kind == "b":
        ids = ids.astype(np.int64)
    if ids.dtype.kind == "O":
        ids = ids.astype(str)
    names, numbers = _numbered(ids)
    is_count = names.dtype.kind in "iu" and np.array_equal(names, np.arange(len(names)))
    return None if is_count else names, numbers


def as_array(values: ArrayLike, field: str) -> Array:
    """Return values as an array, or raise if numpy cannot make one, such as of unequal rows."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UnskewError(f"{field} cannot be made an array ({reason})") from None


def _numbered(ids: Array) -> tuple[Array, NDArray[np.int64]]:
    """Return the distinct ids in order, and the index of each sample's id among them."""
    if ids.dtype.kind in "iu" and len(ids) and ids.min() >= 0 and ids.max() < 4 * len(ids):
        # Counting is about ten times faster than sorting a large array.
        present = np.bincount(ids.astype(np.int64, copy=False)) > 0
        names = np.flatnonzero(present)
        if len(names) == len(present):
            return names, ids.astype(np.int64, copy=False)
        return names, (np.cumsum(present) - 1)[ids]
    names, numbers = np.unique(ids, return_inverse=True)
    return names, numbers.astype(np.int64, copy=False)
