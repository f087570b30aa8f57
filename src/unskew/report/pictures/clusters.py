"""Which cluster each client was in, where a method says so: ``cluster`` in its diagnostics."""

import numpy as np

from unskew.report.pictures.picture import Picture
from unskew.report.pictures.weights import client_rows
from unskew.report.table import Table
from unskew.runs.runs import Runs


def cluster_pictures(runs: Runs) -> list[Picture]:
    """Return a map of the clusters over the rounds, of the first seed of each method."""
    maps, rows = [], []
    for method in runs.methods:
        matrix = client_rows(runs.of(method)[0], "cluster")
        if np.isnan(matrix).all():
            continue
        known = [[None if np.isnan(value) else int(value) for value in row] for row in matrix]
        rounds = [str(i + 1) for i in range(matrix.shape[1])]
        clients = [str(k) for k in range(len(matrix))]
        maps.append({"method": method, "values": known, "rows": clients, "columns": rounds})
        for client, line in enumerate(known):
            pairs = enumerate(line, 1)
            rows += [[method, str(client), str(i), str(c)] for i, c in pairs if c is not None]
    if not maps:
        return []
    return [
        Picture(
            name="clusters",
            section="Clusters",
            title="The cluster of each client over the rounds",
            note="First seed. Cells are empty where a client took no part.",
            kind="clusters",
            data={"x": "round", "y": "client", "value": "cluster", "maps": maps},
            table=Table(["method", "client", "round", "cluster"], rows),
        )
    ]
