"""Metrics over the rounds: one line per method, with a band of one standard deviation."""

import numpy as np

from unskew.report.charts.chart import Chart, cell, thinned, tidied
from unskew.runs.curves import seed_curves
from unskew.runs.run import level_of_clients
from unskew.runs.runs import Runs
from unskew.stats.metric import Metric
from unskew.utils.tables import Table

_POINTS = 200
"""The maximum number of points per line; a screen shows no more."""

_LOSS = {
    "global": "loss on the common test",
    "local": "mean loss on local tests",
    "personal": "mean loss of personal models",
}

_NOTE = "Lines are means over seeds, bands one standard deviation."


def curve_charts(runs: Runs) -> list[Chart]:
    """Return the curves of every metric that was measured."""
    name, worst = runs.metric.name, runs.metric.worst
    specs = [
        (f"global-{name}", "global", name, f"{name} on the common test"),
        (f"local-{name}", "local", name, _on_local_tests(runs.metric)),
        (f"worst-{name}", level_of_clients(runs.level), worst, f"{name} of the worst client"),
        (f"personal-{name}", "personal", name, f"mean {name} of personal models"),
        ("test-loss", runs.level, "loss", _LOSS[runs.level]),
        ("train-loss", None, "train_loss", "training loss"),
    ]
    if not runs.has_personal_level and runs.level != "personal":
        del specs[3]
    if name == "loss":
        specs = [spec for spec in specs if spec[0] != "test-loss"]
    if runs.level != "local":  # the mean over local tests is in the table
        specs = [spec for spec in specs if spec[0] != f"local-{name}"]
    shares = {f"{runs.level}-{other.name}": other.is_share for other in runs.other_metrics}
    specs += [_spec(runs.level, other.name) for other in runs.other_metrics]
    pooled = runs.metric.pooled
    if pooled is not None:
        level = level_of_clients(runs.level)
        specs.append((pooled.name, level, pooled.name, f"{name} of all local tests together"))
    charts = [_chart(runs, *spec, shares.get(spec[0])) for spec in specs]
    return [chart for chart in charts if chart.data["series"]]


def _on_local_tests(metric: Metric) -> str:
    if metric.is_pooled:
        return f"{metric.of_client} of all local tests together"
    return f"mean {metric.name} on local tests"


def _spec(level: str, name: str) -> tuple[str, str, str, str]:
    where = {"global": " on the common test", "local": " on local tests"}
    mean = "" if level == "global" else "mean "
    title = f"{mean}{name}{where.get(level, ' of personal models')}"
    return f"{level}-{name}", level, name, title


def _chart(
    runs: Runs, name: str, level: str | None, field: str, title: str, share: bool | None = None
) -> Chart:
    if share is None:
        share = level is not None and field != "loss" and runs.metric.is_share
    series, rows = [], []
    for method in runs.methods:
        rounds, values = seed_curves(runs.of(method), level, field)
        if not values.size or np.isnan(values).all():
            continue
        mean, sd = values.mean(0), values.std(0, ddof=min(1, len(values) - 1))
        low, high = mean - sd, mean + sd
        if share:  # a share stays between 0 and 1
            low, high = low.clip(0, 1), high.clip(0, 1)
        points = thinned(len(rounds), _POINTS)
        series.append(
            {
                "method": method,
                "x": [rounds[i] for i in points],
                "mean": tidied(mean[points]),
                "low": tidied(low[points]),
                "high": tidied(high[points]),
            }
        )
        for i, round_ in enumerate(rounds):
            cells = [cell(mean[i]), cell(sd[i]), *(cell(value) for value in values[:, i])]
            rows.append([method, str(round_), *cells])
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
    """Return a table of rows whose methods may have different numbers of seeds."""
    width = max((len(row) for row in rows), default=4)
    seeds = [f"run {i}" for i in range(width - 4)]
    return Table(
        ["method", "round", "mean", "sd", *seeds], [row + [""] * (width - len(row)) for row in rows]
    )
