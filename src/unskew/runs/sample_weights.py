"""How clients weigh their samples: the simulator's own view, for the report.

Sample weights never leave a client, and nothing of this is sent or counted. A simulation holds all
clients, so at the end it can look at what each of them kept; the server of a real federation has no
such table.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unskew.methods.common.base import SAMPLE_WEIGHTS, Tensors
from unskew.partition.report import MAX_LISTED_CLIENTS

EDGES = tuple(round(-2 + 0.1 * i, 1) for i in range(41))
"""The ends of the bins, as log10 of a weight; the outermost bins take what lies beyond them."""

_LOOKED_AT = 100
"""So many clients tell whether a method weighs samples: of a million, all need not be read."""


def weights_table(states: Mapping[int, Tensors]) -> dict[str, Any] | None:
    """Return a histogram of each client's sample weights; None if nobody weighs samples.

    ``counts`` has a row a client, ``effective`` its effective sample size ``(sum w)^2 / sum w^2``
    as a share of its samples. Of a large federation the first clients are told.
    """
    if not any(SAMPLE_WEIGHTS in states[k] for k in islice(states, _LOOKED_AT)):
        return None
    clients, samples, effective, counts = [], [], [], []
    for client in islice(sorted(states), MAX_LISTED_CLIENTS):
        weights = states[client].get(SAMPLE_WEIGHTS)
        if weights is None or not len(weights):
            continue
        values = weights.to(torch.float64).cpu().numpy()
        clients.append(client)
        samples.append(len(values))
        effective.append(_effective(values))
        counts.append(_histogram(values))
    return {
        "log10_edges": list(EDGES),
        "client": clients,
        "samples": samples,
        "effective": effective,
        "counts": counts,
    }


def _effective(weights: NDArray[np.float64]) -> float:
    squares = float(np.square(weights).sum())
    return float(weights.sum()) ** 2 / (len(weights) * squares) if squares else 0.0


def _histogram(weights: NDArray[np.float64]) -> list[int]:
    places = np.log10(weights.clip(10 ** EDGES[0], 10 ** EDGES[-1])).clip(EDGES[0], EDGES[-1])
    counts: list[int] = np.histogram(places, np.array(EDGES))[0].tolist()
    return counts
