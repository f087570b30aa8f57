"""How the clients fare: a box a method, over all clients and seeds."""

from typing import Any

import numpy as np

from unskew.report.charts.chart import Chart, cell, tidied, tidy
from unskew.report.charts.curves import has_personal_models
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.utils.tables import Table

_OUTLIERS = 60
"""So many points beyond the whiskers are drawn, the farthest first."""


def box_pictures(runs: Runs) -> list[Chart]:
    """Return the box plot of the global model, and that of personal models where there are any."""
    levels = ["local", "personal"] if has_personal_models(runs) else ["local"]
    charts = [_picture(runs, level) for level in levels]
    return [chart for chart in charts if chart.data["boxes"]]


def _picture(runs: Runs, level: str) -> Chart:
    metric = runs.metric.name
    whose = "the global model" if level == "local" else "personal models"
    boxes, rows = [], []
    for method in runs.methods:
        points = [point for run in runs.of(method) for point in _points(run, level, metric)]
        if points:
            boxes.append(_box(method, points))
        rows += [[method, str(seed), str(client), cell(value)] for client, seed, value in points]
    return Chart(
        name=f"clients-{level}",
        section="How the clients fare",
        title=f"{metric.capitalize()} of {whose} on each client's own test",
        note="After the last round, all clients and seeds. Box: the middle half, with the median; "
        "whiskers: the farthest client within one and a half times the box; diamond: the mean.",
        kind="boxes",
        data={"y": metric, "share": runs.metric.more_is_better, "boxes": boxes},
        table=Table(["method", "seed", "client", metric], rows),
    )


def _points(run: Run, level: str, metric: str) -> list[tuple[int, int, float]]:
    """Return (client, seed, figure) of the last evaluation."""
    tables = [table for table in run.client_tables if table["kind"] == level]
    if not tables or metric not in tables[-1]:  # a node's own loop may measure something else
        return []
    pairs = zip(tables[-1]["client"], tables[-1][metric], strict=True)
    return [(client, run.seed, value) for client, value in pairs if value is not None]


def _box(method: str, points: list[tuple[int, int, float]]) -> dict[str, Any]:
    values = np.array([value for _, _, value in points])
    q1, median, q3 = np.quantile(values, [0.25, 0.5, 0.75])
    reach = 1.5 * (q3 - q1)
    inside = values[(values >= q1 - reach) & (values <= q3 + reach)]
    low, high = min(inside.min(), q1), max(inside.max(), q3)
    beyond = [point for point in points if not low <= point[2] <= high]
    beyond.sort(key=lambda point: -abs(point[2] - median))
    numbers = {"low": low, "q1": q1, "median": median, "q3": q3, "high": high}
    return {
        "method": method,
        "count": len(points),
        "mean": tidy(float(values.mean())),
        **dict(zip(numbers, tidied(list(numbers.values())), strict=True)),
        "outliers": [[client, seed, tidy(value)] for client, seed, value in beyond[:_OUTLIERS]],
    }
