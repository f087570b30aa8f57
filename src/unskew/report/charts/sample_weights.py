"""How clients weigh their samples, as the simulator saw it: all together, and client by client."""

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
"""A map has at most so many rows; beyond, neighbouring clients are drawn as one."""

_TICKS = 8
"""With more ticks than these, only the powers of ten are named."""


def sample_weight_pictures(runs: Runs) -> list[Chart]:
    """Return the pictures of the methods that weigh samples, of their first seed each."""
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
        own = (table["client"], table["effective"])
        return _Weights(run.method, run.seed, edges, counts, *own)

    @property
    def shares(self) -> NDArray[np.float64]:
        shares: NDArray[np.float64] = self.counts / self.counts.sum(axis=1, keepdims=True)
        return shares

    @property
    def overall(self) -> NDArray[np.float64]:
        shares: NDArray[np.float64] = self.counts.sum(axis=0) / self.counts.sum()
        return shares


def _trimmed(known: list[_Weights]) -> list[_Weights]:
    """Leave out the bins at both ends that nobody uses, but keep a weight of one in sight."""
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
    return _picture(
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
        told = zip(numbers, weights.effective, weights.counts.tolist(), strict=True)
        rows += [
            [weights.method, str(weights.seed), number, cell(effective), *map(str, counts)]
            for number, effective, counts in told
        ]
    return _picture(
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


def _picture(known: list[_Weights], **parts: Any) -> Chart:
    worth = "; ".join(
        f"{w.method} {100 * np.median(w.effective):.0f} % (at least {100 * min(w.effective):.0f} %)"
        for w in known
    )
    return Chart(
        section="How samples were weighed",
        note=f"Seed {known[0].seed}, at the end of the run, on a scale of logarithms. "
        "Weights never leave a client: the simulator looks at all of them, "
        "a federation's server cannot. Effective sample size of the median client, as a share of "
        f"its samples: {worth}.",
        **parts,
    )


def _ticks(edges: NDArray[np.float64]) -> list[list[float | str]]:
    """Return places on an axis of log10 and what stands there: 0.5, 1, 2 and so on."""
    powers = range(math.floor(edges[0]), math.ceil(edges[-1]) + 1)
    for leading in ((1, 2, 5), (1,)):
        places = [math.log10(digit) + power for power in powers for digit in leading]
        inside = [place for place in places if edges[0] - 1e-9 <= place <= edges[-1] + 1e-9]
        if len(inside) <= _TICKS:
            break
    return [[round(place, 5), _text(place)] for place in inside]


def _text(log10: float) -> str:
    """Write a weight with two digits."""
    return f"{float(f'{10**log10:.2g}'):g}"
