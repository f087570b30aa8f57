"""The data distribution: the clients' label counts as bubbles, or as a map for many clients."""

from typing import Any

import numpy as np

from unskew.report.charts.chart import Chart, tidied
from unskew.report.distribution_figure import BUBBLES, sorted_shares
from unskew.runs.runs import Runs
from unskew.utils.tables import Table

_COLUMNS = 300
"""The maximum number of columns of a map; beyond it, neighbours share a column."""


def distribution_charts(runs: Runs) -> list[Chart]:
    """Return the chart of the first run's federation, if the run stored its label counts."""
    data = runs[0].metadata.get("data", {}) if len(runs) else {}
    if not data.get("label_counts"):
        return []
    counts = np.array(data["label_counts"])
    classes = data.get("class_names") or [str(c) for c in range(counts.shape[1])]
    clients = data.get("client_names") or [str(k) for k in range(len(counts))]
    rows = [[name, *map(str, row)] for name, row in zip(clients, counts.tolist(), strict=True)]
    as_bubbles = len(counts) <= BUBBLES
    differs = len({run.metadata.get("identity", {}).get("data") for run in runs}) > 1
    seed = f" The partition of seed {runs[0].seed}; it differs between seeds." if differs else ""
    description = (
        "The area of a bubble is the number of training samples; the bars are the clients' sizes."
        if as_bubbles
        else "Shares of the clients' training samples, clients sorted by their most frequent class."
    )
    return [
        Chart(
            name="data-distribution",
            section="Data distribution",
            title="Training samples by client and class",
            note=description + seed,
            kind="bubbles" if as_bubbles else "maps",
            data=_bubbles(counts, clients, classes) if as_bubbles else _map(counts, classes),
            table=Table(["client", *classes], rows),
        )
    ]


def _bubbles(counts: Any, clients: list[str], classes: list[str]) -> dict[str, Any]:
    return {"counts": counts.tolist(), "clients": clients, "classes": classes}


def _map(counts: Any, classes: list[str]) -> dict[str, Any]:
    shares, sizes = sorted_shares(counts, _COLUMNS)
    map_ = {
        "values": [tidied(row) for row in shares],
        "columns": [f"about {size:.0f} samples" for size in sizes],
    }
    return {
        "x": "clients, sorted by their most frequent class",
        "y": "class",
        "value": "share of samples",
        "rows": classes,
        "top": float(min(1.0, max(shares.max(), 3 * shares.mean(axis=1).max()))),
        "maps": [map_],
    }
