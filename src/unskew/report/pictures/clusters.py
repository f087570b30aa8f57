"""Which cluster each client was in, and how methods weigh samples, where they say so.

A method says so by its diagnostics: ``cluster``, a number a client; ``sample_weight_histogram``, a
row of counts a client (or one for all), with the ends of its bins in ``sample_weight_edges``.
"""

import numpy as np

from unskew.report.pictures.picture import Picture, cell, tidied
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


def sample_weight_pictures(runs: Runs) -> list[Picture]:
    """Return the histograms of the weights that clients give their samples."""
    series, rows = [], []
    for method in runs.methods:
        found = _last_histogram(runs.of(method)[0].metrics)
        if found is None:
            continue
        edges, counts = found
        series.append({"method": method, "edges": tidied(edges), "counts": counts})
        rows += [
            [method, cell(a), cell(b), str(count)]
            for a, b, count in zip(edges, edges[1:], counts, strict=False)
        ]
    if not series:
        return []
    return [
        Picture(
            name="sample-weights",
            section="How samples were weighed",
            title="Weights of the samples",
            note="First seed, all clients together, as last said in the run.",
            kind="histograms",
            data={"x": "weight of a sample", "y": "samples", "series": series},
            table=Table(["method", "from", "to", "samples"], rows),
        )
    ]


def _last_histogram(metrics: list[dict[str, object]]) -> tuple[list[float], list[float]] | None:
    for row in reversed(metrics):
        found = row.get("diagnostics")
        if isinstance(found, dict) and "sample_weight_histogram" in found:
            counts = np.atleast_2d(np.array(found["sample_weight_histogram"], dtype=np.float64))
            return list(found["sample_weight_edges"]), counts.sum(axis=0).tolist()
    return None
