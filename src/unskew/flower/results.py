"""What Flower's own strategies return of a run."""

from collections.abc import Mapping
from typing import Any

from flwr.app import ArrayRecord, MetricRecord, MetricRecordValues
from flwr.serverapp.strategy import Result

from unskew.runs.run import Run


def as_result(run: Run, told: Mapping[int, MetricRecord]) -> Result:
    """Return a run as Flower has it: the final arrays, and by round what was measured."""
    assert run.model is not None
    last = [line for line in run.metrics if line["stage"] == run.metrics[-1]["stage"]]
    result = Result(arrays=ArrayRecord(run.model.state_dict()))
    for line in last:
        round_ = line["round"]
        if line["train_loss"] is not None:
            result.train_metrics_clientapp[round_] = MetricRecord({"loss": line["train_loss"]})
        own = {level: line[level] for level in _OWN if level in line}
        if own:
            result.evaluate_metrics_clientapp[round_] = _record(own)
        if "global" in line:
            result.evaluate_metrics_serverapp[round_] = _record({"global": line["global"]})
    result.evaluate_metrics_serverapp.update(told)
    return result


def _record(levels: Mapping[str, Mapping[str, Any]]) -> MetricRecord:
    figures: dict[str, MetricRecordValues] = {
        f"{level}/{name}": value
        for level, measured in levels.items()
        for name, value in measured.items()
        if value is not None
    }
    return MetricRecord(figures)


_OWN = ["local", "personal"]
"""The levels that are measured on the nodes."""
