"""The rows of a comparison's table: one method over all its seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unskew.runs.run import FinalBy, Run, level_of_clients
from unskew.stats.metric import Metric

FIXED_SPLIT = (
    "All seeds have the same clients and test samples, so ± does not include how they were drawn; "
    "--holdout, or in Python a function of the seed as federation, draws them per seed."
)
"""The note below a table whose seeds share one federation."""


@dataclass(frozen=True)
class Summary:
    """One method over all its seeds. Accuracies are between 0 and 1; NaN if not measured.

    They are the numbers that are judged; see :meth:`unskew.runs.run.Run.final_value`. ``accuracy``
    is that of ``level``: ``global``, the global model's on the common test set, or without one
    ``local``, its mean over the clients' test sets. ``worst_client`` is the worst of the clients'
    values, at the level ``personal`` that of its personal model, ``personal`` the mean of personal
    models, and ``global_`` that of the global model on the common test set. For networks that have
    no accuracy (densities), all of these are losses; where another metric is judged, they are its
    values.
    """

    method: str
    seeds: int
    level: str
    accuracy: float
    accuracy_sd: float
    global_: float
    local: float
    worst_client: float
    personal: float
    pooled: float
    """The metric over the test samples of all clients together; NaN for accuracy and loss."""
    others: Mapping[str, float]
    """Further metrics at the same level."""
    reached: int
    rounds_to_target: float
    bytes_to_target: float
    failed_rounds: int
    """Rounds of all seeds that left the model as it was."""


def summarize_method(
    method: str,
    runs: Sequence[Run],
    target: float,
    level: str,
    final: FinalBy,
    metric: Metric,
    others: Sequence[Metric] = (),
) -> Summary:
    """Summarise the runs of one method; costs are counted until the target is reached."""
    name, worst, pooled = metric.name, metric.worst, metric.pooled
    finals = [run.final_value(level, name, final) for run in runs]
    trained = [run for run in runs if not run.is_untrained]
    costs = [cost for run in trained if (cost := run.cost_to(target, level, metric))]

    def mean(level: str, name: str) -> float:
        return float(np.mean([run.final_value(level, name, final) for run in runs]))

    return Summary(
        method=method,
        seeds=len(runs),
        level=level,
        accuracy=float(np.mean(finals)),
        accuracy_sd=float(np.std(finals, ddof=1)) if len(finals) > 1 else 0.0,
        global_=mean("global", name),
        local=mean("local", name),
        worst_client=mean(level_of_clients(level), worst),
        personal=mean("personal", name),
        pooled=math.nan if pooled is None else mean(level_of_clients(level), pooled.name),
        others={other.name: mean(level, other.name) for other in others},
        reached=len(costs),
        rounds_to_target=_mean([cost.rounds for cost in costs]),
        bytes_to_target=_mean([cost.bytes_up + cost.bytes_down for cost in costs]),
        failed_rounds=sum(run.failed_rounds for run in runs),
    )


def summary_cells(
    summaries: Sequence[Summary],
    metric: Metric,
    others: Sequence[Metric],
    target: str,
    lrs: Mapping[str, float],
) -> tuple[list[str], list[list[str]]]:
    """Return the columns of a table and its rows.

    ``target`` is the text of the target; numbers of seeds and learning rates have a
    column if they differ.
    """
    columns = {"method": [each.method for each in summaries]}
    if len({each.seeds for each in summaries}) > 1:
        columns["seeds"] = [str(each.seeds) for each in summaries]
    if len(set(lrs.values())) > 1:
        columns["lr"] = [f"{lrs[each.method]:g}" for each in summaries]
    columns[judged_column(summaries, metric)] = [
        metric.text(each.accuracy, each.accuracy_sd if each.seeds > 1 else None)
        for each in summaries
    ]
    local = [metric.text(each.local) for each in summaries]
    personal = [metric.text(each.personal) for each in summaries]
    judged = {each.level for each in summaries}
    if "global" not in judged and any(not math.isnan(each.global_) for each in summaries):
        columns["global"] = [metric.text(each.global_) for each in summaries]
    if not _is_judged_locally(summaries):
        columns["local"] = local
    if personal != local and judged != {"personal"}:
        columns["personal"] = personal
    columns["worst"] = [metric.text(each.worst_client) for each in summaries]
    if any(not math.isnan(each.pooled) for each in summaries):
        columns["pooled"] = [metric.text(each.pooled) for each in summaries]
    for other in others:
        columns[other.name] = [other.text(each.others[other.name]) for each in summaries]
    columns[f"rounds to {target}"] = [
        _number(each.rounds_to_target, "{:.1f}") + _reached(each) for each in summaries
    ]
    columns[f"MB to {target}"] = [
        _number(each.bytes_to_target / 1e6, "{:.2f}") for each in summaries
    ]
    if any(each.failed_rounds for each in summaries):
        columns["failed rounds"] = [str(each.failed_rounds) for each in summaries]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def judged_column(summaries: Sequence[Summary], metric: Metric) -> str:
    """Return the heading of the metric that is judged, which names its level unless global."""
    if summaries and summaries[0].level == "personal":
        return f"personal {metric.name}"
    is_local = _is_judged_locally(summaries) and not metric.is_pooled
    return f"local {metric.name}" if is_local else metric.name


def columns_text(summaries: Sequence[Summary], metric: Metric) -> str:
    """Return the columns that hold the numbers that are judged, for a sentence."""
    if summaries and summaries[0].level == "personal":
        return (
            f"Personal {metric.name} (personal models on the clients' own tests), local and worst"
        )
    if metric.is_pooled:
        return f"{metric.name} (over all the clients' tests together) and worst"
    if _is_judged_locally(summaries):
        return f"Local {metric.name} (mean over the clients' own tests) and worst"
    return f"{metric.name.capitalize()}, local and worst"


def _is_judged_locally(summaries: Sequence[Summary]) -> bool:
    """Return whether there are only local tests; runs without any evaluation have neither."""
    return any(each.level == "local" and not math.isnan(each.local) for each in summaries)


def _reached(summary: Summary) -> str:
    partly = 0 < summary.reached < summary.seeds
    return f" ({summary.reached}/{summary.seeds} seeds)" if partly else ""


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else form.format(value)
