"""Charts that papers show and reports do not: losses of densities, and accuracy over time."""

import numpy as np

from unskew.report.charts.chart import Chart, cell, thinned, tidied
from unskew.runs.curves import seed_curves
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.utils.tables import Table

_POINTS = 200


def density_chart(runs: Runs) -> Chart | None:
    """Return the training and validation loss of the global density (FedDisk, Fig. 5)."""
    learned = [run for run in runs if any(row["stage"] == "density" for row in run.metrics)]
    if not learned:
        return None
    run = learned[0]
    rows = [row for row in run.metrics if row["stage"] == "density"]
    rounds = [row["round"] for row in rows]
    losses = {
        "training": [row["train_loss"] for row in rows],
        "validation": [row["diagnostics"]["validation_loss"] for row in rows],
    }
    series = [
        {"method": name, "x": rounds, "mean": tidied(values), "low": tidied(values),
         "high": tidied(values)}
        for name, values in losses.items()
    ]  # fmt: skip
    table = [
        [str(round_), *(cell(values[i]) for values in losses.values())]
        for i, round_ in enumerate(rounds)
    ]
    return Chart(
        name="density-losses",
        section="Over the rounds",
        title="Loss of the global density",
        note=f"{run.method}, seed {run.seed}; training stops when the validation loss rises.",
        kind="curves",
        data={"x": "round", "y": "loss of the global density", "share": False, "series": series},
        table=Table(["round", *losses], table),
    )


def time_chart(runs: Runs) -> Chart:
    """Return the metric over the seconds of training (FedFusion, Fig. 4)."""
    series, rows = [], []
    metric, level = runs.metric, runs.level
    for method in runs.methods:
        of_method = runs.of(method)
        rounds, values = seed_curves(of_method, level, metric.name)
        if not values.size:
            continue
        seconds = np.mean([_seconds_at(run, rounds) for run in of_method], axis=0)
        mean, sd = values.mean(0), values.std(0, ddof=min(1, len(values) - 1))
        places = thinned(len(rounds), _POINTS)
        bands = {"mean": mean, "low": mean - sd, "high": mean + sd}
        drawn = {name: tidied(band[places]) for name, band in bands.items()}
        series.append({"method": method, "x": tidied(seconds[places]), **drawn})
        rows += [[method, cell(seconds[i]), cell(mean[i]), cell(sd[i])] for i in range(len(rounds))]
    return Chart(
        name=f"{level}-{metric.name}-over-time",
        section="Over the rounds",
        title=f"{metric.name.capitalize()} over the seconds of training",
        note="Seconds depend on the machine and include evaluation.",
        kind="curves",
        data={"x": "seconds", "y": metric.name, "share": metric.is_share, "series": series},
        table=Table(["method", "seconds", "mean", "sd"], rows),
    )


def _seconds_at(run: Run, rounds: list[int]) -> list[float]:
    """Return the seconds from the start of the run to the end of the given rounds of its task."""
    total, at = 0.0, {}
    for row in run.metrics:
        total += row["seconds"]
        if row["stage"] == "task":
            at[row["round"]] = total
    return [at[round_] for round_ in rounds]
