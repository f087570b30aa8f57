"""The four workloads of `benchmarks.rounds`: clients, samples, network and steps.

A peer is a program that runs a workload and prints the seconds per round as JSON, see
:func:`report`.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Workload:
    """One local epoch of a cohort, without evaluation."""

    title: str
    clients: int
    cohort: int
    samples: int
    shape: tuple[int, ...]
    batch: int
    lr: float
    model: str
    """The network's spec string in unskew; peers build the same layers."""
    rounds: int = 12
    """Rounds to time."""
    peer_rounds: int = 12
    warm_up: int = 3
    """Rounds of peers before timing starts."""

    def data(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return random samples and labels, sorted by client."""
        rng = np.random.default_rng(0)
        total = self.clients * self.samples
        x = rng.random(size=(total, *self.shape), dtype=np.float32)
        return x, rng.integers(0, 10, size=total)


WORKLOADS = {
    "W1": Workload(
        "50 of 1,000 clients, MLP 64-32-10, 50 samples, batch 10",
        1000, 50, 50, (64,), 10, 0.1, "mlp:hidden=32",
        rounds=30, peer_rounds=7,  # fedjax's debug layout takes 15 s per round
    ),
    "W2": Workload(
        "10 of 100 clients, LeNet-5 on 1x28x28, 500 samples, batch 32",
        100, 10, 500, (1, 28, 28), 32, 0.05, "lenet5",
    ),
    "W3": Workload(
        "10 of 100 clients, FedDisk CNN of 16 channels with BatchNorm, 500 samples, batch 32",
        100, 10, 500, (1, 28, 28), 32, 0.05, "feddisk-cnn:channels=16,padding=2",
    ),
    "W4": Workload(
        "10 of 100 clients, ResNet-18 on 3x32x32, 100 samples, batch 32",
        100, 10, 100, (3, 32, 32), 32, 0.05, "resnet18",
        rounds=2, peer_rounds=2, warm_up=1,
    ),
}  # fmt: skip


def arguments() -> tuple[Workload, int]:
    """Parse a peer's command line: the workload and the number of rounds to time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--rounds", type=int, default=10)
    found = parser.parse_args()
    return WORKLOADS[found.workload], found.rounds


def report(layouts: dict[str, Sequence[float]]) -> None:
    """Print the seconds of each timed round, for each layout, as JSON."""
    json.dump({name: list(seconds) for name, seconds in layouts.items()}, sys.stdout)


TimeRounds = Callable[[Workload, int], dict[str, Sequence[float]]]
