"""Who holds what: the clients' label counts, as bubbles, or as a map when they are many."""

from typing import Any

import numpy as np

from unskew.report.charts.chart import Chart, tidied
from unskew.report.data_page import BUBBLES, sorted_shares
from unskew.runs.runs import Runs
from unskew.utils.tables import Table

_COLUMNS = 300
"""A map on a page has at most so many columns; beyond, neighbours are drawn as one."""


def holding_pictures(runs: Runs) -> list[Chart]:
    """Return the picture of the first run's federation, if it was written down."""
    data = runs[0].facts.get("data", {}) if len(runs) else {}
    if not data.get("label_counts"):
        return []
    counts = np.array(data["label_counts"])
    classes = data["class_names"] or [str(c) for c in range(counts.shape[1])]
    clients = data["client_names"] or [str(k) for k in range(len(counts))]
    rows = [[name, *map(str, row)] for name, row in zip(clients, counts.tolist(), strict=True)]
    few = len(counts) <= BUBBLES
    several = len({run.facts.get("identity", {}).get("data") for run in runs}) > 1
    which = f" The deal of seed {runs[0].seed}; each seed has its own." if several else ""
    what = (
        "The area of a bubble is the number of training samples; bars above are the clients' sizes."
        if few
        else "Shares of the clients' training samples, clients sorted by their most frequent class."
    )
    return [
        Chart(
            name="who-holds-what",
            section="Who holds what",
            title="Training samples by client and class",
            note=what + which,
            kind="bubbles" if few else "maps",
            data=_bubbles(counts, clients, classes) if few else _map(counts, classes),
            table=Table(["client", *classes], rows),
        )
    ]


def _bubbles(counts: Any, clients: list[str], classes: list[str]) -> dict[str, Any]:
    return {"counts": counts.tolist(), "clients": clients, "classes": classes}


def _map(counts: Any, classes: list[str]) -> dict[str, Any]:
    shares, sizes = sorted_shares(counts, _COLUMNS)
    one = {
        "values": [tidied(row) for row in shares],
        "columns": [f"about {size:.0f} samples" for size in sizes],
    }
    return {
        "x": "clients, sorted by their most frequent class",
        "y": "class",
        "value": "share of samples",
        "rows": classes,
        "top": float(min(1.0, max(shares.max(), 3 * shares.mean(axis=1).max()))),
        "maps": [one],
    }
