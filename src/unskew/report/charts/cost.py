"""The cost to reach the target: rounds and megabytes, one bar per method."""

import math
from typing import Any

import numpy as np

from unskew.report.charts.chart import Chart, cell, tidied, tidy
from unskew.runs.runs import Runs
from unskew.runs.target import target_text
from unskew.stats.verdict import tested_on
from unskew.utils.tables import Table


def cost_charts(runs: Runs, target: float | None = None) -> list[Chart]:
    """Return the bar chart; empty if nothing was evaluated."""
    target = runs.default_target() if target is None else target
    if math.isnan(target):
        return []
    rounds, megabytes, rows = [], [], []
    for method in runs.methods:
        costs = [
            (run.seed, run.cost_to(target, runs.level, runs.metric)) for run in runs.of(method)
        ]
        reached = [(seed, cost) for seed, cost in costs if cost is not None]
        sent = [(cost.bytes_up + cost.bytes_down) / 1e6 for _, cost in reached]
        rounds.append(_bar(method, [float(cost.rounds) for _, cost in reached], len(costs)))
        megabytes.append(_bar(method, sent, len(costs)))
        for seed, cost in costs:
            numbers = ["", ""]
            if cost is not None:
                numbers = [str(cost.rounds), cell((cost.bytes_up + cost.bytes_down) / 1e6)]
            rows.append([method, str(seed), *numbers])
    at = target_text(runs.metric, target)
    where = tested_on(runs.level, runs.metric)
    personal = runs.level == "personal"
    models = "personal models first reach" if personal else "the global model first reaches"
    note = (
        f"Until {models} {at} on {where}. All stages, both "
        "directions and all clients are included. Dots are seeds; seeds that never reach the "
        "target are not part of the bar, and are counted next to it."
    )
    panels = [{"label": "rounds", "bars": rounds}, {"label": "MB sent", "bars": megabytes}]
    return [
        Chart(
            name="cost-to-target",
            section="Cost",
            title=f"Cost to reach {at}",
            note=note,
            kind="bars",
            data={"panels": panels},
            table=Table(["method", "seed", "rounds", "MB"], rows),
        )
    ]


def _bar(method: str, values: list[float], seeds: int) -> dict[str, Any]:
    mean = tidy(float(np.mean(values))) if values else None
    return {"method": method, "mean": mean, "values": tidied(values), "seeds": seeds}
