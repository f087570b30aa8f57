"""Sample weights, as the simulator sees them: over all samples, and per client."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.report.charts.bins import bin_names, bin_starts, mean_of_bins
from unskew.report.charts.chart import Chart, cell, tidied
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.utils.tables import Table

_ROWS = 300
"""The maximum number of rows of a map; beyond it, neighbouring clients share a row."""

_TICKS = 8
"""With more ticks than this, only the powers of ten are labelled."""


def sample_weight_charts(runs: Runs) -> list[Chart]:
    """Return the charts of the methods with sample weights, for the first seed of each."""
    found = [_Weights.of(runs.of(method)[0]) for method in runs.methods]
    known = _trimmed([weights for weights in found if weights is not None])
    if not known:
        return []
    edges = known[0].edges
    names = [f"{_text(a)} to {_text(b)}" for a, b in pairwise(edges)]
    axis = {"x": "weight of a sample", "edges": tidied(edges), "ticks": _ticks(edges)}
    return [_overall(known, axis, names), _by_client(known, axis, names)]


@dataclass(frozen=True)
class _Weights:
    """The histograms of one run: clients x bins."""

    method: str
    seed: int
    edges: NDArray[np.float64]
    counts: NDArray[np.int64]
    clients: list[int]
    effective: list[float]

    @staticmethod
    def of(run: Run) -> "_Weights | None":
        table = run.sample_weights
        if table is None or not table["client"]:
            return None
        edges, counts = np.array(table["log10_edges"]), np.array(table["counts"])
        clients, effective = table["client"], table["effective"]
        return _Weights(run.method, run.seed, edges, counts, clients, effective)

    @property
    def shares(self) -> NDArray[np.float64]:
        shares: NDArray[np.float64] = self.counts / self.counts.sum(axis=1, keepdims=True)
        return shares

    @property
    def overall(self) -> NDArray[np.float64]:
        shares: NDArray[np.float64] = self.counts.sum(axis=0) / self.counts.sum()
        return shares


def _trimmed(known: list[_Weights]) -> list[_Weights]:
    """Remove the empty bins at both ends, but keep the bin of weight one."""
    if not known:
        return []
    edges = known[0].edges
    used = np.any([weights.counts.any(axis=0) for weights in known], axis=0)
    used |= (edges[:-1] <= 0) & (edges[1:] > 0)
    first, last = np.flatnonzero(used)[[0, -1]]
    return [
        _Weights(
            weights.method, weights.seed, edges[first : last + 2],
            weights.counts[:, first : last + 1], weights.clients, weights.effective,
        )
        for weights in known
    ]  # fmt: skip


def _overall(known: list[_Weights], axis: dict[str, Any], names: list[str]) -> Chart:
    rows = [
        [weights.method, str(weights.seed), *name.split(" to "), cell(share)]
        for weights in known
        for name, share in zip(names, weights.overall, strict=True)
    ]
    return _chart(
        known,
        name="sample-weights",
        title="Weights of all samples",
        kind="histograms",
        data={
            **axis,
            "y": "share of samples",
            "bins": names,
            "series": [{"method": w.method, "shares": tidied(w.overall)} for w in known],
        },
        table=Table(["method", "seed", "from", "to", "share"], rows),
    )


def _by_client(known: list[_Weights], axis: dict[str, Any], names: list[str]) -> Chart:
    maps, rows = [], []
    for weights in known:
        starts = bin_starts(len(weights.clients), _ROWS)
        numbers = [str(client) for client in weights.clients]
        grouped = len(starts) < len(numbers)
        maps.append(
            {
                "method": weights.method,
                "values": [tidied(row) for row in mean_of_bins(weights.shares, starts)],
                "rows": bin_names(starts, len(numbers), 0) if grouped else numbers,
                "columns": names,
            }
        )
        table = zip(numbers, weights.effective, weights.counts.tolist(), strict=True)
        rows += [
            [weights.method, str(weights.seed), number, cell(effective), *map(str, counts)]
            for number, effective, counts in table
        ]
    return _chart(
        known,
        name="sample-weights-clients",
        title="Weights of each client's samples",
        kind="maps",
        data={
            **axis,
            "y": "client",
            "value": "share of samples",
            "top": max(float(weights.shares.max()) for weights in known),
            "maps": maps,
        },
        table=Table(["method", "seed", "client", "effective", *names], rows),
    )


def _chart(known: list[_Weights], **parts: Any) -> Chart:
    effective = "; ".join(
        f"{w.method} {100 * np.median(w.effective):.0f} % (at least {100 * min(w.effective):.0f} %)"
        for w in known
    )
    return Chart(
        section="Sample weights",
        note=f"Seed {known[0].seed}, at the end of the run, on a logarithmic scale. "
        "Weights never leave a client: the simulator can read all of them, the server of a real "
        "federation cannot. Effective sample size of the median client, as a share of its samples: "
        f"{effective}.",
        **parts,
    )


def _ticks(edges: NDArray[np.float64]) -> list[list[float | str]]:
    """Return the ticks of a log10 axis: positions, and labels such as 0.5, 1 and 2."""
    powers = range(math.floor(edges[0]), math.ceil(edges[-1]) + 1)
    for leading in ((1, 2, 5), (1,)):
        positions = [math.log10(digit) + power for power in powers for digit in leading]
        inside = [x for x in positions if edges[0] - 1e-9 <= x <= edges[-1] + 1e-9]
        if len(inside) <= _TICKS:
            break
    return [[round(x, 5), _text(x)] for x in inside]


def _text(log10: float) -> str:
    """Format a weight with two digits."""
    return f"{float(f'{10**log10:.2g}'):g}"
