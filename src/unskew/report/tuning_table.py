"""The hyper-parameters a search chose for each method, and all it tried, for tables and pages."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from unskew.runs.runs import Runs
from unskew.stats.metric import Metric
from unskew.utils.tables import Table
from unskew.utils.wording import plural

Search = Mapping[str, Any]


def recorded_searches(runs: Runs) -> dict[str, Search]:
    """Return each method's recorded search; empty if nothing was tuned."""
    return {
        method: search
        for method in runs.methods
        if (search := runs.of(method)[0].metadata.get("tuning")) is not None
    }


def tuning_table(runs: Runs) -> Table | None:
    """Return one row per method: the chosen settings, and their value on the validation part."""
    found = recorded_searches(runs)
    if not found:
        return None
    columns = ["chosen", "lr", "clip", "validation", "at an edge", "settings", "judged by"]
    rows = [_cells(method, search, runs.metric) for method, search in found.items()]
    if not any(search["clips"] for search in found.values()):
        columns, rows = [columns[0], columns[1], *columns[3:]], [r[:2] + r[3:] for r in rows]
    notes = [f"{method}: {note}" for method, search in found.items() for note in _notes(search)]
    return Table(columns, rows, title=_title(next(iter(found.values()))), notes=notes)


def history_table(runs: Runs) -> Table | None:
    """Return one row per setting that was tried, in order; None if nothing was tuned."""
    rows = []
    for search in recorded_searches(runs).values():
        for tried, best in with_best(search, runs.metric):
            clip = tried.get("clip")
            rows.append(
                [
                    search["requested"],
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


def with_best(search: Search, metric: Metric) -> Iterator[tuple[Search, float | None]]:
    """Yield every setting in order, with the best value so far of those that may be chosen."""
    best: float | None = None
    for tried in search["results"]:
        value = tried["value"]
        if _is_sound(tried, search) and value is not None:
            best = value if best is None else metric.best([best, value])
        yield tried, best


def search_text(runs: Runs) -> str:
    """Return how the settings were found, for readers of a page; empty if nothing was tuned."""
    for search in recorded_searches(runs).values():
        low, high = search["lr"]
        clips = ", ".join(f"{norm:g}" for norm in search["clips"])
        clipped = f", gradients clipped at {clips} or not at all" if clips else ""
        return (
            f"Every method searched learning rates from {low:g} to {high:g} (more, if its best lay "
            f"at an edge){clipped}, and its own options: first the requested setting and "
            "quasi-random ones, then those that Optuna proposed. The better ones were trained "
            "further, and settings that failed with any seed rank last."
        )
    return ""


def _title(search: Search) -> str:
    return (
        f"tuned on {100 * search['share']:g} % of each client's training samples "
        f"(budget per method: {plural(search['budget'], 'round')}, rounds of a chosen setting: "
        f"{search['rounds']}, seeds: {', '.join(map(str, search['seeds']))})"
    )


def _cells(method: str, search: Search, metric: Metric) -> list[str]:
    chosen, clip = search["chosen"], search["chosen"].get("clip")
    edges = (f"{name}: {side}" for name, side in search["edges"].items())
    return [
        method,
        f"{chosen['lr']:g}",
        "none" if clip is None else f"{clip:g}",
        metric.text(chosen["value"]),
        ", ".join(edges) or "no",
        str(len(search["results"])),
        f"{search['level']} {search['metric']}",
    ]


def _notes(search: Search) -> Iterator[str]:
    """Yield what a reader of the table should know about one search."""
    (low, high), (lowest, highest) = search["lr"], search["searched_lr"]
    if (low, high) != (lowest, highest):
        yield f"the learning rates were extended to {lowest:g} to {highest:g}"
    chosen = search["chosen"]
    if not _is_sound(chosen, search):
        how = (
            chosen["failures"][0]
            if chosen["failures"]
            else f"was trained with {len(chosen['values'])} of {len(search['seeds'])} seeds for "
            f"{chosen['rounds']} of {search['rounds']} rounds"
        )
        yield f"every setting failed; the chosen one {how}"


def _is_sound(tried: Search, search: Search) -> bool:
    """Return whether a setting was trained with all seeds and failed in none."""
    return len(tried["values"]) == len(search["seeds"]) and not tried["failures"]


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.6g}"
