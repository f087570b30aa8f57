"""Curves of one method over the rounds, one row per seed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from unskew.runs.run import Run


def seed_curves(
    runs: "Sequence[Run]", level: str | None, field: str
) -> tuple[list[int], NDArray[np.float64]]:
    """Return the rounds at which all runs were evaluated, and one row of values per run.

    ``level`` is None for metrics of training, which are not evaluated at a level.
    """
    curves = []
    for run in runs:
        if level is None:
            curves.append({row["round"]: row.get(field) for row in run.task_metrics})
        else:
            curves.append(dict(zip(*run.curve(level, field), strict=True)))
    rounds = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    return rounds, np.array([[curve[r] for r in rounds] for curve in curves], dtype=np.float64)
