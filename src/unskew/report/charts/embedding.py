"""The clients as points, close together if they hold similar labels (t-SNE)."""

import numpy as np
from numpy.typing import NDArray

from unskew.errors import UnskewError
from unskew.report.charts.chart import Chart, cell, tidy
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.utils.tables import Table

_MIN_CLIENTS = 5
"""The minimum number of clients for a t-SNE."""


def check_embedding(runs: Runs) -> None:
    """Raise, with the reason, if there is nothing to draw."""
    clients = runs[0].clients
    if clients < _MIN_CLIENTS:
        raise UnskewError(f"tsne: needs {_MIN_CLIENTS} clients or more (these runs have {clients})")
    if len(_label_counts(runs)) < _MIN_CLIENTS:
        raise UnskewError("tsne: these runs have too many clients to store label counts")


def embedding_charts(runs: Runs) -> list[Chart]:
    """Return the map of the first run's clients, coloured by the metric of the best method."""
    from sklearn.manifold import TSNE  # noqa: PLC0415 (slow to import)

    counts = _label_counts(runs)
    if len(counts) < _MIN_CLIENTS:
        return []
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    perplexity = min(30.0, (len(counts) - 1) / 3)
    positions = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(shares)
    verdict = runs.verdict()
    leader = runs.methods[0] if verdict is None else verdict.leader
    run = next((run for run in runs.of(leader) if run.seed == runs[0].seed), runs[0])
    values = _client_values(run, runs.metric.of_client)
    listed = "" if len(values) in (0, len(counts)) else f" It is known of {len(values)} clients."
    points = [
        [tidy(float(x)), tidy(float(y)), tidy(values.get(k)), int(counts[k].sum())]
        for k, (x, y) in enumerate(positions)
    ]
    rows = [
        [str(k), *(cell(value) for value in point[:3]), str(point[3])]
        for k, point in enumerate(points)
    ]
    return [
        Chart(
            name="embedding",
            section="Similarity of clients",
            title="Clients by their label distribution (t-SNE)",
            note=f"Seed {run.seed}. Close points hold similar labels; distances between groups "
            f"have no meaning. Colour: {runs.metric.name} of the model of {leader} on the client's "
            f"local test; area: samples.{listed}",
            kind="points",
            data={
                "points": points,
                "value": runs.metric.name,
                "share": runs.metric.is_share,
            },
            table=Table(["client", "x", "y", runs.metric.name, "samples"], rows),
        )
    ]


def _label_counts(runs: Runs) -> NDArray[np.int64]:
    """Return the first run's label counts, clients x classes; empty if they are not stored."""
    counts = runs[0].metadata.get("data", {}).get("label_counts") or np.empty((0, 0))
    return np.array(counts, dtype=np.int64)


def _client_values(run: Run, metric: str) -> dict[int, float]:
    tables = [table for table in run.client_tables if table["kind"] == "local"]
    if not tables or metric not in tables[-1]:
        return {}
    return dict(zip(tables[-1]["client"], tables[-1][metric], strict=True))
