"""The metric of clients: one box per method, over all clients and seeds."""

from typing import Any

import numpy as np

from unskew.report.charts.chart import Chart, cell, tidied, tidy
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.utils.tables import Table

_OUTLIERS = 60
"""The maximum number of points drawn beyond the whiskers, the farthest first."""


def box_charts(runs: Runs) -> list[Chart]:
    """Return the box plot of the global model, and of personal models if there are any."""
    levels = ["local", "personal"] if runs.has_personal_level else ["local"]
    charts = [_chart(runs, level) for level in levels]
    return [chart for chart in charts if chart.data["boxes"]]


def _chart(runs: Runs, level: str) -> Chart:
    metric = runs.metric.of_client
    model = "the global model" if level == "local" else "personal models"
    boxes, rows, listed = [], [], set[int]()
    for method in runs.methods:
        tables = [(run.seed, table) for run in runs.of(method) if (table := _last(run, level))]
        points = [point for seed, table in tables for point in _points(table, seed, metric)]
        if points:
            boxes.append(_box(method, points) | _totals([t for _, t in tables], metric))
        listed |= {len(table["client"]) for _, table in tables if "of" in table}
        rows += [[method, str(seed), str(client), cell(value)] for client, seed, value in points]
    return Chart(
        name=f"clients-{level}",
        section="Clients",
        title=f"{metric.capitalize()} of {model} on each client's local test",
        note="After the last round, all clients and seeds. Box: quartiles and median; whiskers: "
        "the farthest client within 1.5 times the interquartile range; diamond: the mean."
        + (f" Drawn from {max(listed)} clients per seed, one per percentile." if listed else ""),
        kind="boxes",
        data={"y": metric, "share": runs.metric.is_share, "boxes": boxes},
        table=Table(["method", "seed", "client", metric], rows),
    )


def _last(run: Run, level: str) -> dict[str, Any] | None:
    """Return the table of the last evaluation; None if there is none, or no model of the level."""
    tables = reversed(run.client_tables) if run.has_model(level) else ()
    return next((table for table in tables if table["kind"] == level), None)


def _points(table: dict[str, Any], seed: int, metric: str) -> list[tuple[int, int, float]]:
    """Return (client, seed, value) of the clients in a table."""
    if metric not in table:  # a custom training loop may report other metrics
        return []
    pairs = zip(table["client"], table[metric], strict=True)
    return [(client, seed, value) for client, value in pairs if value is not None]


def _totals(tables: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    """Return the number and the mean of all clients, where tables list only some of them."""
    summaries = [table.get("summary", {}).get(metric, {}) for table in tables]
    if not all("mean" in each for each in summaries):
        return {}
    count = sum(each["count"] for each in summaries)
    total = sum(each["count"] * each["mean"] for each in summaries)
    return {"count": count, "mean": tidy(total / count)} if count else {}


def _box(method: str, points: list[tuple[int, int, float]]) -> dict[str, Any]:
    values = np.array([value for _, _, value in points])
    q1, median, q3 = np.quantile(values, [0.25, 0.5, 0.75])
    length = 1.5 * (q3 - q1)
    inside = values[(values >= q1 - length) & (values <= q3 + length)]
    low, high = min(inside.min(), q1), max(inside.max(), q3)
    outliers = [point for point in points if not low <= point[2] <= high]
    outliers.sort(key=lambda point: -abs(point[2] - median))
    quantiles = {"low": low, "q1": q1, "median": median, "q3": q3, "high": high}
    return {
        "method": method,
        "count": len(points),
        "mean": tidy(float(values.mean())),
        **dict(zip(quantiles, tidied(list(quantiles.values())), strict=True)),
        "outliers": [[client, seed, tidy(value)] for client, seed, value in outliers[:_OUTLIERS]],
    }
