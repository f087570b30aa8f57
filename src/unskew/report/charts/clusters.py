"""The cluster of each client, for methods that report ``cluster`` in their diagnostics."""

import numpy as np
from numpy.typing import NDArray

from unskew.report.charts.aggregation_weights import client_rows, not_listed
from unskew.report.charts.chart import Chart, round_tables, thinned
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.utils.tables import Table

_MAX_CELLS = 200
"""The maximum number of clients and of rounds in a map; clusters cannot be averaged."""

_EMPTY = "did not participate, or is in no cluster"


def cluster_charts(runs: Runs) -> list[Chart]:
    """Return a map of the clusters over the rounds, for the first seed of each method."""
    maps, rows = [], []
    for method in runs.methods:
        matrix = _clusters(runs.of(method)[0])
        if np.isnan(matrix).all():
            continue
        known = [[None if np.isnan(value) else int(value) for value in row] for row in matrix]
        clients, rounds = thinned(len(known), _MAX_CELLS), thinned(matrix.shape[1], _MAX_CELLS)
        maps.append(
            {
                "method": method,
                "values": [[known[k][i] for i in rounds] for k in clients],
                "rows": [str(k) for k in clients],
                "columns": [str(i + 1) for i in rounds],
            }
        )
        for client, line in enumerate(known):
            pairs = enumerate(line, 1)
            rows += [[method, str(client), str(i), str(c)] for i, c in pairs if c is not None]
    if not maps:
        return []
    return [
        Chart(
            name="clusters",
            section="Clusters",
            title="Cluster of each client over the rounds",
            note=f"First seed. The numbers of clusters are arbitrary. Empty: the client {_EMPTY}."
            + not_listed(runs.of(method)[0] for method in runs.methods),
            kind="clusters",
            data={"x": "round", "y": "client", "value": "cluster", "maps": maps, "empty": _EMPTY},
            table=Table(["method", "client", "round", "cluster"], rows),
        )
    ]


def _clusters(run: Run) -> NDArray[np.float64]:
    """Return the clusters, clients x rounds; NaN also for clients in no cluster.

    Weightings that are multiplied prefix their diagnostics with their name and a dot.
    """
    diagnostics = {name for table in round_tables(run) for name in table["diagnostics"]}
    names = sorted(name for name in diagnostics if name.rpartition(".")[2] == "cluster")
    matrix = client_rows(run, min(names, key=len, default="cluster"))
    return np.where(matrix < 0, np.nan, matrix)
