"""A run in the format that Flower's strategies return."""

from collections.abc import Mapping
from typing import Any

from flwr.app import ArrayRecord, MetricRecord, MetricRecordValues
from flwr.serverapp.strategy import Result

from unskew.runs.run import Run

_NODE_LEVELS = ("local", "personal")
"""The levels that are measured on the nodes."""


def as_result(run: Run, server_metrics: Mapping[int, MetricRecord]) -> Result:
    """Return the final arrays of a run and its metrics by round, as Flower's result."""
    assert run.model is not None
    last_stage = [row for row in run.metrics if row["stage"] == run.metrics[-1]["stage"]]
    result = Result(arrays=ArrayRecord(run.model.state_dict()))
    for row in last_stage:
        round_ = row["round"]
        if row["train_loss"] is not None:
            result.train_metrics_clientapp[round_] = MetricRecord({"loss": row["train_loss"]})
        on_nodes = {level: row[level] for level in _NODE_LEVELS if level in row}
        if on_nodes:
            result.evaluate_metrics_clientapp[round_] = _metric_record(on_nodes)
        if "global" in row:
            result.evaluate_metrics_serverapp[round_] = _metric_record({"global": row["global"]})
    result.evaluate_metrics_serverapp.update(server_metrics)
    return result


def _metric_record(levels: Mapping[str, Mapping[str, Any]]) -> MetricRecord:
    metrics: dict[str, MetricRecordValues] = {
        f"{level}/{name}": value
        for level, measured in levels.items()
        for name, value in measured.items()
        if value is not None
    }
    return MetricRecord(metrics)
