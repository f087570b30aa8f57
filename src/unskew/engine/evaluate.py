"""Accuracy on three levels that never share a name.

- ``global``: the global model on the common test set.
- ``local``: the global model on each client's own test samples.
- ``personal``: each client's personal model on its own test samples.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from unskew.data.columns import Array, Columns
from unskew.engine.client import to_tensor
from unskew.network import Network

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """How a model did on some samples: which it got right, and the loss of each."""

    right: NDArray[np.bool_]
    losses: Floats

    @property
    def accuracy(self) -> float:
        """The share of samples it got right."""
        return float(self.right.mean())

    @property
    def loss(self) -> float:
        """The mean loss."""
        return float(self.losses.mean())


@dataclass(frozen=True, eq=False)
class ByClient:
    """Accuracies over the clients that have test samples."""

    clients: NDArray[np.int64]
    accuracy: Floats
    loss: Floats

    def summary(self) -> dict[str, float]:
        """Return mean, deviation, extremes and quartiles over the clients."""
        low, middle, high = np.quantile(self.accuracy, [0.25, 0.5, 0.75])
        return {
            "accuracy": float(self.accuracy.mean()),
            "sd": float(self.accuracy.std()),
            "min": float(self.accuracy.min()),
            "q25": float(low),
            "median": float(middle),
            "q75": float(high),
            "max": float(self.accuracy.max()),
            "loss": float(self.loss.mean()),
        }


@torch.no_grad()
def score(
    network: Network, vector: Tensor, x: Array, y: Array, device: torch.device, chunk: int = 1024
) -> Scores:
    """Let a model guess samples, in evaluation mode."""
    network.module.eval()
    trainable = network.layout.trainable
    vector = vector.to(device)
    weights, buffers = vector[:trainable], network.buffers_of(vector[trainable:])
    right, losses = [], []
    for start in range(0, len(y), chunk):
        labels = to_tensor(y[start : start + chunk]).to(device, torch.int64)
        inputs = network.inputs(to_tensor(x[start : start + chunk]).to(device))
        output = network(weights, buffers, inputs)
        losses.append(F.cross_entropy(output, labels, reduction="none").cpu())
        right.append((output.argmax(-1) == labels).cpu())
    network.module.train()
    return Scores(torch.cat(right).numpy(), torch.cat(losses).double().numpy())


def by_client(scores: Scores, test: Columns) -> ByClient:
    """Sum scores up by the client that holds each sample."""
    clients = np.flatnonzero(test.sizes)
    starts = test.offsets[clients]
    sizes = test.sizes[clients]
    return ByClient(
        clients,
        np.add.reduceat(scores.right.astype(np.float64), starts) / sizes,
        np.add.reduceat(scores.losses, starts) / sizes,
    )


def score_personal(
    network: Network, model_of: Callable[[int], Tensor], test: Columns, device: torch.device
) -> ByClient:
    """Score each client's own model on its own test samples."""
    clients = np.flatnonzero(test.sizes)
    each = [score(network, model_of(int(k)), *test.client(int(k)), device) for k in clients]
    return ByClient(
        clients,
        np.array([scores.accuracy for scores in each]),
        np.array([scores.loss for scores in each]),
    )
