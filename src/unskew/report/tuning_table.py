"""The hyper-parameters a search chose for each method, for tables and pages."""

from collections.abc import Mapping
from typing import Any

from unskew.runs.runs import Runs
from unskew.stats.metric import Metric
from unskew.utils.tables import Table

Facts = Mapping[str, Any]


def tuning_facts(runs: Runs) -> dict[str, Facts]:
    """Return the facts of each method's search; empty if nothing was tuned."""
    return {
        method: facts
        for method in runs.methods
        if (facts := runs.of(method)[0].facts.get("tuning")) is not None
    }


def tuning_table(runs: Runs) -> Table | None:
    """Return one row per method: the chosen settings, and their value on the validation part."""
    found = tuning_facts(runs)
    if not found:
        return None
    columns = ["chosen", "lr", "validation", "worst trial", "judged by"]
    rows = [_cells(method, facts, runs.metric) for method, facts in found.items()]
    return Table(columns, rows, title=_title(next(iter(found.values()))))


def tuned_lrs(runs: Runs) -> str:
    """Return the learning rates that every method tried first; empty if nothing was tuned."""
    for facts in tuning_facts(runs).values():
        return ", ".join(f"{lr:g}" for lr in facts["lrs"])
    return ""


def _title(facts: Facts) -> str:
    return (
        f"tuned on {100 * facts['share']:g} % of each client's training samples "
        f"(trials per method: {facts['trials']}, rounds per trial: {facts['rounds']}, "
        f"seed: {facts['seed']})"
    )


def _cells(method: str, facts: Facts, metric: Metric) -> list[str]:
    values = [result["value"] for result in facts["results"] if result["value"] is not None]
    worst = min if metric.more_is_better else max
    return [
        method,
        f"{facts['chosen']['lr']:g}",
        metric.text(facts["chosen"]["value"]),
        metric.text(worst(values) if values else None),
        f"{facts['level']} {facts['metric']}",
    ]
