"""Figures over the rounds: a line a method, with a band of one deviation over seeds."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unskew.report.charts.chart import Chart, cell, last_stage, thinned, tidied
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.utils.tables import Table

_POINTS = 200
"""A line has at most so many points; a screen shows no more."""

_NOTE = "Lines are means over seeds, bands one standard deviation."


def curve_pictures(runs: Runs) -> list[Chart]:
    """Return the curves of every figure that was measured."""
    judged = runs.metric
    name, worst = judged.name, judged.worst
    wanted = [
        (f"global-{name}", "global", name, f"{name} on the common test"),
        (f"local-{name}", "local", name, f"mean {name} on the clients' own tests"),
        (f"worst-{name}", "local", worst, f"{name} of the worst client"),
        (f"personal-{name}", "personal", name, f"mean {name} of personal models"),
        ("test-loss", "global", "loss", "loss on the common test"),
        ("train-loss", None, "train_loss", "training loss"),
    ]
    if not has_personal_models(runs):
        del wanted[3]
    if name == "loss":
        wanted = [line for line in wanted if line[0] != "test-loss"]
    if runs.level == "global":  # the mean over the clients' tests is in the table
        wanted = [line for line in wanted if line[0] != f"local-{name}"]
    charts = [_picture(runs, *line) for line in wanted]
    return [chart for chart in charts if chart.data["series"]]


def has_personal_models(runs: Runs) -> bool:
    """Tell whether any method gives clients models of their own."""
    metric = runs.metric.name
    return any(run.last("personal", metric) != run.last("local", metric)
               for run in runs if not math.isnan(run.last("personal", metric)))  # fmt: skip


def seed_curves(
    runs: Sequence[Run], level: str | None, field: str
) -> tuple[list[int], NDArray[np.float64]]:
    """Return the rounds all runs were measured at, and one row of figures a run."""
    curves = []
    for run in runs:
        if level is None:
            rows = [row for row in run.metrics if row["stage"] == last_stage(run)]
            curves.append({row["round"]: row.get(field) for row in rows})
        else:
            curves.append(dict(zip(*run.curve(level, field), strict=True)))
    rounds = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    return rounds, np.array([[curve[r] for r in rounds] for curve in curves], dtype=np.float64)


def _picture(runs: Runs, name: str, level: str | None, field: str, title: str) -> Chart:
    share = level is not None and field != "loss" and runs.metric.more_is_better
    series, rows = [], []
    for method in runs.methods:
        rounds, values = seed_curves(runs.of(method), level, field)
        if not values.size or np.isnan(values).all():
            continue
        mean, sd = values.mean(0), values.std(0, ddof=min(1, len(values) - 1))
        low, high = mean - sd, mean + sd
        if share:  # a share stays between 0 and 1
            low, high = low.clip(0, 1), high.clip(0, 1)
        places = thinned(len(rounds), _POINTS)
        series.append(
            {
                "method": method,
                "x": [rounds[i] for i in places],
                "mean": tidied(mean[places]),
                "low": tidied(low[places]),
                "high": tidied(high[places]),
            }
        )
        for i, round_ in enumerate(rounds):
            figures = [cell(mean[i]), cell(sd[i]), *(cell(value) for value in values[:, i])]
            rows.append([method, str(round_), *figures])
    return Chart(
        name=name,
        section="Over the rounds",
        title=title[0].upper() + title[1:],
        note=_NOTE,
        kind="curves",
        data={"x": "round", "y": title, "share": share, "series": series},
        table=_table(rows),
    )


def _table(rows: list[list[str]]) -> Table:
    """Lay rows out whose methods may have different numbers of seeds."""
    width = max((len(row) for row in rows), default=4)
    seeds = [f"run {i}" for i in range(width - 4)]
    return Table(
        ["method", "round", "mean", "sd", *seeds], [row + [""] * (width - len(row)) for row in rows]
    )
