"""The target of a comparison: a value of the metric, up to which costs are counted."""

import math
from collections.abc import Mapping, Sequence

from unskew.errors import UnskewError
from unskew.stats.metric import Metric

_MARGIN = 0.2
"""Methods whose metric differs from the best by more than this share do not affect the target."""


def common_target(metric: Metric, curves: Mapping[str, Sequence[Sequence[float]]]) -> float:
    """Return a target that all methods reach with every seed, except much worse ones.

    ``curves`` has one list of values per seed of each method. A method that fails, or has no useful
    global model, would otherwise set a target that all methods reach in the first round. The target
    is NaN if no method has values with every seed.
    """
    found = []
    for seeds in curves.values():
        known = [[value for value in curve if not math.isnan(value)] for curve in seeds]
        if known and all(known):
            found.append(metric.worst_of([metric.best(curve) for curve in known]))
    if not found:
        return math.nan
    best = metric.best(found)
    near = [value for value in found if abs(value - best) <= _MARGIN * abs(best)]
    return metric.reached_by_all(near)


def check_target(target: float | None, what: str = "an accuracy") -> None:
    """Raise if a target is not a valid accuracy or other share (NaN means an unknown target)."""
    if target is not None and (target < 0 or target > 1):
        raise UnskewError(f"target must be {what} from 0 to 1 (got {target:g})")


def target_text(metric: Metric, target: float) -> str:
    """Format a target for a column heading."""
    return f"{100 * target:g} %" if metric.is_share else f"{target:g}"
