"""Histograms of the clients' sample weights, for the report of a simulation.

Sample weights never leave a client, so they are neither sent nor counted as traffic. A simulation
has access to the states of all clients; the server of a real federation has no such table.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.composition.values import SAMPLE_WEIGHTS, Tensors
from unskew.partition.report import MAX_LISTED_CLIENTS

EDGES = tuple(round(-2 + 0.1 * i, 1) for i in range(41))
"""The edges of the bins, as log10 of a weight; the outer bins include more extreme weights."""

_NUM_CHECKED = 100
"""The number of clients that are checked for sample weights, so that not all need to be read."""


def weights_table(states: Mapping[int, Tensors]) -> dict[str, Any] | None:
    """Return a histogram of each client's sample weights; None if no client has sample weights.

    ``counts`` has one row per client, ``effective`` is its effective sample size
    ``(sum w)^2 / sum w^2`` as a share of its samples. Only the first clients of a large federation
    are included.
    """
    if not any(_sample_weights(states[k]) is not None for k in islice(states, _NUM_CHECKED)):
        return None
    clients, samples, effective, counts = [], [], [], []
    for client in islice(sorted(states), MAX_LISTED_CLIENTS):
        weights = _sample_weights(states[client])
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


def _sample_weights(state: Tensors) -> Tensor | None:
    """Return the sample weights that a part of the method keeps in a client's state, if any."""
    return next((state[key] for key in state if key.endswith(f"/{SAMPLE_WEIGHTS}")), None)


def _effective(weights: NDArray[np.float64]) -> float:
    squares = float(np.square(weights).sum())
    return float(weights.sum()) ** 2 / (len(weights) * squares) if squares else 0.0


def _histogram(weights: NDArray[np.float64]) -> list[int]:
    exponents = np.log10(weights.clip(10 ** EDGES[0], 10 ** EDGES[-1])).clip(EDGES[0], EDGES[-1])
    counts: list[int] = np.histogram(exponents, np.array(EDGES))[0].tolist()
    return counts
