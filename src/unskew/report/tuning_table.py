"""The hyper-parameters a search chose for each method, and all it tried, for tables and pages."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from unskew.runs.runs import Runs
from unskew.stats.metric import Metric
from unskew.utils.tables import Table
from unskew.utils.wording import plural

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
    columns = ["chosen", "lr", "clip", "validation", "at an edge", "settings", "judged by"]
    rows = [_cells(method, facts, runs.metric) for method, facts in found.items()]
    if not any(facts["clips"] for facts in found.values()):
        columns, rows = [columns[0], columns[1], *columns[3:]], [r[:2] + r[3:] for r in rows]
    notes = [f"{method}: {note}" for method, facts in found.items() for note in _notes(facts)]
    return Table(columns, rows, title=_title(next(iter(found.values()))), notes=notes)


def history_table(runs: Runs) -> Table | None:
    """Return one row per setting that was tried, in order; None if nothing was tuned."""
    rows = []
    for facts in tuning_facts(runs).values():
        for tried, best in with_best(facts, runs.metric):
            clip = tried.get("clip")
            rows.append(
                [
                    facts["requested"],
                    tried["method"],
                    f"{tried['lr']:g}",
                    "" if clip is None else f"{clip:g}",
                    str(tried["rounds"]),
                    str(len(tried["values"])),
                    _number(tried["value"]),
                    tried.get("skipped") or ", ".join(tried["failures"]),
                    _number(best),
                ]
            )
    columns = ["requested", "setting", "lr", "clip", "rounds", "seeds", "value", "failed", "best"]
    return Table(columns, rows) if rows else None


def with_best(facts: Facts, metric: Metric) -> Iterator[tuple[Facts, float | None]]:
    """Yield every setting in order, with the best value so far of those that may be chosen."""
    best: float | None = None
    for tried in facts["results"]:
        value = tried["value"]
        judged = len(tried["values"]) == len(facts["seeds"]) and not tried["failures"]
        if judged and value is not None:
            best = value if best is None else metric.best([best, value])
        yield tried, best


def search_text(runs: Runs) -> str:
    """Return how the settings were found, for readers of a page; empty if nothing was tuned."""
    for facts in tuning_facts(runs).values():
        low, high = facts["lr"]
        clips = ", ".join(f"{norm:g}" for norm in facts["clips"])
        clipped = f", gradients clipped at {clips} or not at all" if clips else ""
        return (
            f"Every method searched learning rates from {low:g} to {high:g} (more, if its best lay "
            f"at an edge){clipped}, and its own options: first the requested setting and "
            "quasi-random ones, then those that Optuna proposed. The better ones were trained "
            "further, and a setting that failed with any seed could not be chosen."
        )
    return ""


def _title(facts: Facts) -> str:
    return (
        f"tuned on {100 * facts['share']:g} % of each client's training samples "
        f"(budget per method: {plural(facts['budget'], 'round')}, rounds of a chosen setting: "
        f"{facts['rounds']}, seeds: {', '.join(map(str, facts['seeds']))})"
    )


def _cells(method: str, facts: Facts, metric: Metric) -> list[str]:
    chosen, clip = facts["chosen"], facts["chosen"].get("clip")
    edges = (f"{name}: {side}" for name, side in facts["edges"].items())
    return [
        method,
        f"{chosen['lr']:g}",
        "none" if clip is None else f"{clip:g}",
        metric.text(chosen["value"]),
        ", ".join(edges) or "no",
        str(len(facts["results"])),
        f"{facts['level']} {facts['metric']}",
    ]


def _notes(facts: Facts) -> Iterator[str]:
    """Yield what a reader of the table should know about one search."""
    (low, high), (lowest, highest) = facts["lr"], facts["searched_lr"]
    if (low, high) != (lowest, highest):
        yield f"the learning rates were extended to {lowest:g} to {highest:g}"
    if failures := facts["chosen"]["failures"]:
        yield f"every setting failed; the chosen one {failures[0]}"


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.6g}"
