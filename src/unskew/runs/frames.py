"""Runs as pandas DataFrames; pandas is in the extra ``notebook``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unskew.errors import UnskewError

if TYPE_CHECKING:
    from pandas import DataFrame

    from unskew.runs.run import Run

_GROUPS = ("global", "local", "personal", "outputs")
"""Evaluation levels, whose metrics become columns such as ``global_accuracy``."""


def history_frame(run: "Run") -> "DataFrame":
    """Return one row per round."""
    return _frame([_round_cells(run, row) for row in run.metrics])


def histories_frame(runs: "Sequence[Run]") -> "DataFrame":
    """Return one row per round of every run."""
    return _frame(
        [
            {"method": run.method, "seed": run.seed, **_round_cells(run, row)}
            for run in runs
            for row in run.metrics
        ]
    )


def runs_frame(runs: "Sequence[Run]") -> "DataFrame":
    """Return one row per run: its last metrics and its whole cost."""
    return _frame([_run_cells(run) for run in runs])


def _round_cells(run: "Run", row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a round by column; lists and tables of diagnostics are left out."""
    cells = {name: row.get(name) for name in ("stage", "round", "clients", "train_loss", "seconds")}
    cells |= row["traffic"]
    cells |= _levels(run, row)
    cells |= {
        name: value
        for name, value in row.get("diagnostics", {}).items()
        if isinstance(value, int | float)
    }
    return {**cells, "rejected": len(row.get("rejected", {})), "kept_model": "kept_model" in row}


def _run_cells(run: "Run") -> dict[str, Any]:
    last: dict[str, Any] = {}
    for row in run.metrics:  # levels may be evaluated in different rounds
        last |= _levels(run, row)
    return {
        "method": run.method,
        "seed": run.seed,
        "data": run.data,
        "network": run.network,
        "clients": run.clients,
        "lr": run.metadata.get("configuration", {}).get("lr"),
        **last,
        **vars(run.cost),
        "seconds": sum(row.get("seconds", 0.0) for row in run.metrics),
    }


def _levels(run: "Run", row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of the levels at which the run has a model."""
    groups = filter(run.has_model, _GROUPS)
    return {
        f"{group}_{name}": value for group in groups for name, value in row.get(group, {}).items()
    }


def _frame(rows: list[dict[str, Any]]) -> "DataFrame":
    try:
        from pandas import DataFrame  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError:
        raise UnskewError(
            'pandas: DataFrames need it; install it with pip install "unskew[notebook]"'
        ) from None
    return DataFrame(rows)
