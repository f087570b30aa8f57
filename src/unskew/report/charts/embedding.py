"""The clients as points: near each other where they hold similar labels (t-SNE)."""

import numpy as np
from numpy.typing import NDArray

from unskew.errors import UnskewError
from unskew.report.charts.chart import Chart, cell, tidy
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.utils.tables import Table

_FEWEST = 5
"""t-SNE of fewer clients says nothing."""


def check_embedding(runs: Runs) -> None:
    """Complain, naming the reason, if there is nothing to draw."""
    clients = runs[0].clients
    if clients < _FEWEST:
        raise UnskewError(f"tsne: needs {_FEWEST} clients or more (these runs have {clients})")
    if len(_label_counts(runs)) < _FEWEST:
        raise UnskewError("tsne: these runs hold no label counts, as they have too many clients")


def embedding_pictures(runs: Runs) -> list[Chart]:
    """Return the map of the first run's clients, coloured by how the leader's model serves them."""
    from sklearn.manifold import TSNE  # noqa: PLC0415 (slow to import)

    counts = _label_counts(runs)
    if len(counts) < _FEWEST:
        return []
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    perplexity = min(30.0, (len(counts) - 1) / 3)
    places = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(shares)
    verdict = runs.verdict()
    leader = runs.methods[0] if verdict is None else verdict.leader
    run = next((run for run in runs.of(leader) if run.seed == runs[0].seed), runs[0])
    served = _served(run, runs.metric.name)
    points = [
        [tidy(float(x)), tidy(float(y)), tidy(served.get(k)), int(counts[k].sum())]
        for k, (x, y) in enumerate(places)
    ]
    rows = [
        [str(k), *(cell(value) for value in point[:3]), str(point[3])]
        for k, point in enumerate(points)
    ]
    return [
        Chart(
            name="embedding",
            section="Which clients are alike",
            title="Clients by what they hold (t-SNE of label shares)",
            note=f"Seed {run.seed}. Near points hold similar labels; distances between groups mean "
            f"nothing. Colour: {runs.metric.name} of the model of {leader} on the client's own "
            "test; area: samples.",
            kind="points",
            data={
                "points": points,
                "value": runs.metric.name,
                "share": runs.metric.more_is_better,
            },
            table=Table(["client", "x", "y", runs.metric.name, "samples"], rows),
        )
    ]


def _label_counts(runs: Runs) -> NDArray[np.int64]:
    """Return the first run's label counts, clients x classes; empty if not written down."""
    counts = runs[0].facts.get("data", {}).get("label_counts") or np.empty((0, 0))
    return np.array(counts, dtype=np.int64)


def _served(run: Run, metric: str) -> dict[int, float]:
    tables = [table for table in run.client_tables if table["kind"] == "local"]
    return dict(zip(tables[-1]["client"], tables[-1][metric], strict=True)) if tables else {}
