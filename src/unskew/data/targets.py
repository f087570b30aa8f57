"""Targets: the classes of samples, or the numbers of a regression, recognised from their values."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.data import checks
from unskew.data.columns import Array, Columns, check_finite
from unskew.data.read_tables import RawTable
from unskew.errors import UnskewError

TaskName = Literal["regression", "binary", "multiclass"]

MANY_VALUES = 20
"""Numbers with a fraction that have more distinct values than this are quantities: a regression."""

BINS = 10
"""How many quantile bins of a regression target stand for classes where classes are needed."""

BINS_NOTE = f"{BINS} quantile bins of the target stand for classes"

_PRECISION = 1e-5
"""The smallest range of targets, relative to their size, that float32 represents well."""


def as_targets(y: ArrayLike, field: str, task: TaskName | None = None) -> Array:
    """Return integer labels, or the targets of a regression as float32.

    Without a task, floating-point numbers with many distinct values are quantities (a
    regression), and whole numbers with few are labels.
    """
    array = checks.as_array(y, field)
    if array.dtype.kind == "b":
        array = array.astype(np.int64)
    if task == "regression":
        return _numbers(array, field)
    if array.dtype.kind != "f" or array.ndim != 1:
        return checks.labels(array, field)
    check_finite(array, field)
    if task is None and is_continuous(array):
        return _numbers(array, field)
    if not np.array_equal(array, np.floor(array)) or np.abs(array).max(initial=0) > 2**53:
        raise UnskewError(
            f"{field} must be one integer label per sample (got {array.dtype} with fractions); "
            "number the classes, or set task='regression'"
        )
    return checks.labels(array.astype(np.int64), field)


def is_continuous(values: NDArray[np.floating]) -> bool:
    """Return whether numbers are those of a regression: they have many distinct values."""
    return len(np.unique(values)) > MANY_VALUES


def table_targets(table: RawTable, name: str, task: TaskName | None) -> Array:
    """Return the targets of a table's column: numbers of a regression, else ids of classes.

    Whole numbers are classes, unless they are stored as floating-point numbers with many distinct
    values or the task says otherwise.
    """
    if task == "regression":
        return table.target_numbers(name)
    if task is None and table.holds_floats(name):
        values = table.target_numbers(name)
        if is_continuous(values):
            return values
    found = table.ids(name)
    if task is None and found.dtype.kind == "U":
        try:
            numbers = found.astype(np.float64)
        except ValueError:
            return found
        if np.isfinite(numbers).all() and is_continuous(numbers):
            return table.target_numbers(name)
    return found


def check_task(task: TaskName | None, classes: int) -> None:
    """Raise if a target does not have the classes of a task."""
    if task not in (None, "regression", "binary", "multiclass"):
        raise UnskewError(f"task must be regression, binary or multiclass (got {task!r})")
    if task == "binary" and classes > 2:
        raise UnskewError(f"task: binary needs two classes, and there are {classes}")


def in_bins(y: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the quantile bin of each target, from 0 to BINS - 1; equal targets share a bin."""
    if not len(y):
        return np.zeros(0, np.int64)
    edges = np.quantile(y, np.arange(1, BINS) / BINS)
    return np.searchsorted(edges, y, side="right").astype(np.int64)


def target_sums(y: Array) -> tuple[float, float]:
    """Return what a client reports about its targets: their sum and the sum of their squares."""
    values = y.astype(np.float64)
    return float(values.sum()), float((values * values).sum())


def mean_and_deviation(samples: list[int], sums: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean and the standard deviation of all clients' targets, from their sums.

    The sums are added in the order of the clients, so that a server that receives them computes the
    same bits as a simulation. The deviation of equal targets is 0.
    """
    count = max(1, sum(samples))
    center = sum(each[0] for each in sums) / count
    variance = sum(each[1] for each in sums) / count - center * center
    tiny = (1e-6 * abs(center)) ** 2
    return center, float(np.sqrt(variance)) if variance > tiny else 0.0


def center_and_scale(samples: list[int], sums: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean and the standard deviation, which is taken as 1 if all targets are equal."""
    center, deviation = mean_and_deviation(samples, sums)
    return center, deviation or 1.0


def sums_of(columns: Columns) -> list[tuple[float, float]]:
    """Return the sums of every client's targets."""
    return [target_sums(columns.client(k)[1]) for k in range(len(columns))]


def _numbers(array: Array, field: str) -> NDArray[np.float32]:
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise UnskewError(
            f"{field} must be one number per sample (got {array.dtype} of shape {array.shape})"
        )
    check_finite(array, field)
    size = float(np.abs(array).max(initial=0))
    if size and 0 < float(np.ptp(array)) < _PRECISION * size:
        raise UnskewError(
            f"{field} differs by less than {_PRECISION:g} of its size, which float32 cannot "
            "represent; subtract its mean"
        )
    with np.errstate(over="ignore"):
        numbers = array.astype(np.float32)
    check_finite(numbers, field)
    return numbers
