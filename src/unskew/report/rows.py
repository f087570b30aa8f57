"""The numbers of a comparison, one row per method, for programs: as JSON values and as CSV."""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from unskew.report.tuning_table import recorded_searches
from unskew.runs.runs import Runs
from unskew.stats.verdict import Verdict
from unskew.utils.tables import inert

Row = dict[str, Any]


def method_rows(runs: Runs, target: float | None = None) -> list[Row]:
    """Return one row per method, the best first: its summary, its verdict and its tuning.

    ``accuracy`` and the levels are values of ``metric``. The keys of a pair with the baseline are
    those of :class:`unskew.stats.Pair`.
    """
    verdict, tuned, not_judged = runs.verdict(), recorded_searches(runs), runs.not_judged
    return [
        {name.rstrip("_"): value for name, value in asdict(row).items()}
        | {"metric": runs.metric.name}
        | {
            "verdict": verdict.note(row.method)
            if verdict and row.method not in not_judged
            else None
        }
        | (_pair(verdict, row.method) if row.method not in not_judged else {})
        | {"failed": _failed(runs, row.method), "remarks": runs.remarks.get(row.method, [])}
        | ({"tuning": tuned[row.method]} if row.method in tuned else {})
        for row in runs.summaries(target)
    ]


def _failed(runs: Runs, method: str) -> list[str]:
    return [f"{kind} with seed {seed}" for seed, kind in runs.failures(method).items()]


def _pair(verdict: Verdict | None, method: str) -> Row:
    """Return how a method compares with the baseline, and whether it may be the best."""
    if verdict is None:
        return {}
    pair = next((asdict(pair) for pair in verdict.pairs if pair.method == method), {})
    pair.pop("seeds", None)
    return {
        "baseline": verdict.baseline,
        "may_be_best": method in verdict.answers.best,
        "answer": None,
        **pair,
    }


def methods_csv(runs: Runs, target: float | None = None) -> str:
    """Return the rows of all methods as CSV, without their tuning and with the target."""
    target = runs.default_target() if target is None else target
    rows = [row | {"target": target} for row in method_rows(runs, target)]
    return csv_text([{name: row[name] for name in row if name != "tuning"} for row in rows])


def tuning_csv(runs: Runs) -> str:
    """Return the chosen settings of each method, and their value on the validation part, as CSV."""
    rows = [
        {
            "chosen": method,
            "lr": search["chosen"]["lr"],
            "clip": search["chosen"].get("clip"),
            "edges": [f"{name}: {side}" for name, side in search["edges"].items()],
            "validation": search["chosen"]["value"],
            "level": search["level"],
            "metric": search["metric"],
            "settings": len(search["results"]),
            "rounds": search["spent"],
        }
        for method, search in recorded_searches(runs).items()
    ]
    return csv_text(rows)


def csv_text(rows: Sequence[Row]) -> str:
    """Return rows as CSV, numbers in full; what is not known is an empty cell."""
    flat = [dict(_flattened(row)) for row in rows]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(map(inert, columns))
    writer.writerows([_cell(row.get(name)) for name in columns] for row in flat)
    return out.getvalue()


def _flattened(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield names and values; the members of a mapping are columns such as ``others.auc``."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{key}", each) for key, each in value.items())
        else:
            yield name, value


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    return inert("; ".join(value) if isinstance(value, list) else str(value))
