"""What the network's goal measures, accuracy for one, on three levels that never share a name.

- ``global``: the global model on the common test set.
- ``local``: the global model on each client's own test samples.
- ``personal``: each client's personal model on its own test samples.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.data.columns import Array, Columns
from unskew.engine.client import to_tensor
from unskew.models.functional import Batch, FunctionalModel
from unskew.utils.rng import stream, uniforms

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """How a model did on some samples: by measure, one number a sample."""

    measures: Mapping[str, Floats]

    def means(self) -> dict[str, float]:
        """Return the mean of every measure."""
        return {name: float(values.mean()) for name, values in self.measures.items()}


@dataclass(frozen=True, eq=False)
class ByClient:
    """The measures of the clients that have test samples: by measure, one number a client."""

    clients: NDArray[np.int64]
    measures: Mapping[str, Floats]

    def summary(self) -> dict[str, float]:
        """Return means over the clients, and how the first measure is spread over them."""
        means = {name: float(values.mean()) for name, values in self.measures.items()}
        first = next(iter(self.measures.values()))
        low, middle, high = np.quantile(first, [0.25, 0.5, 0.75])
        return {
            **means,
            "sd": float(first.std()),
            "min": float(first.min()),
            "q25": float(low),
            "median": float(middle),
            "q75": float(high),
            "max": float(first.max()),
        }


@torch.no_grad()
def score(
    network: FunctionalModel,
    vector: Tensor,
    x: Array,
    y: Array,
    device: torch.device,
    chunk: int = 1024,
) -> Scores:
    """Measure a model on samples, in evaluation mode.

    Where a measure takes random numbers, they are the same for every model.
    """
    network.module.eval()
    trainable = network.layout.trainable
    vector = vector.to(device)
    weights, buffers = vector[:trainable], network.buffers_of(vector[trainable:])
    found: dict[str, list[Tensor]] = {}
    for start in range(0, len(y), chunk):
        labels = to_tensor(y[start : start + chunk]).to(device, torch.int64)
        batch = Batch(
            network.inputs(to_tensor(x[start : start + chunk]).to(device)),
            labels,
            torch.ones(len(labels), device=device),
            _chance(network, start, len(labels), device),
        )
        for name, values in network.goal.measures(network, weights, buffers, batch).items():
            found.setdefault(name, []).append(values.double().cpu())
    network.module.train()
    return Scores({name: torch.cat(values).numpy() for name, values in found.items()})


def _chance(
    network: FunctionalModel, start: int, count: int, device: torch.device
) -> Tensor | None:
    """Return the random numbers of test samples: each is a client of its own, so to say."""
    if not network.goal.noise_per_sample:
        return None
    samples = np.arange(start, start + count)
    numbers = uniforms(stream(0, "evaluation"), samples, 0, 1, network.goal.noise_per_sample)
    return torch.from_numpy(numbers[:, 0]).to(device)


def by_client(scores: Scores, test: Columns) -> ByClient:
    """Sum scores up by the client that holds each sample."""
    clients = np.flatnonzero(test.sizes)
    starts = test.offsets[clients]
    sizes = test.sizes[clients]
    return ByClient(
        clients,
        {name: np.add.reduceat(values, starts) / sizes for name, values in scores.measures.items()},
    )


def score_personal(
    network: FunctionalModel, model_of: Callable[[int], Tensor], test: Columns, device: torch.device
) -> ByClient:
    """Score each client's own model on its own test samples."""
    clients = np.flatnonzero(test.sizes)
    each = [score(network, model_of(int(k)), *test.client(int(k)), device).means() for k in clients]
    return ByClient(clients, {name: np.array([means[name] for means in each]) for name in each[0]})
