"""Exact sample weights on MNIST with noise that grows from client to client.

    python -m benchmarks.feddisk_noise --seeds 5

3,000 images on 20 clients; client k adds Gaussian noise of variance level * (k + 1)/20 and clips to
[0, 1]. Given the clean image, which only a simulation knows, the density of a noisy one is exact at
every client: a normal density per pixel, with the mass outside of [0, 1] at its ends. Prints, for
each level, the test accuracy of FedAvg and of FedDisk with these ratios p/q_k, their difference,
and the median client's effective sample size and coverage. Needs MNIST.
"""

import argparse
import warnings
from statistics import mean, median, stdev
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp

import unskew as us
from unskew.data.federation import Federation
from unskew.data.sources import source
from unskew.errors import UnskewWarning
from unskew.methods.feddisk.method import FedDisk
from unskew.methods.feddisk.weights import weights_from

CLIENTS, SAMPLES, TESTS = 20, 3000, 2000
LEVELS = (0.3, 1.0, 3.0)
TASK: dict[str, Any] = {
    "model": "mlp:hidden=64", "rounds": 20, "steps": 20, "batch_size": 32, "lr": 0.1,
    "evaluate_every": 20,
}  # fmt: skip
Array = NDArray[np.float64]


def log_ratios(noisy: Array, clean: Array, client: NDArray[np.int64], deviations: Array) -> Array:
    """Return ``log p/q_k`` of each sample at its client, p the mean of all clients' densities."""
    densities = np.empty((len(noisy), len(deviations)))
    for k, sd in enumerate(deviations):
        below, above = log_ndtr(-clean / sd), log_ndtr((clean - 1) / sd)
        inside = -(((noisy - clean) / sd) ** 2) / 2 - np.log(sd * np.sqrt(2 * np.pi))
        pixels = np.where(noisy <= 0, below, np.where(noisy >= 1, above, inside))
        densities[:, k] = pixels.sum(1)
    own = densities[np.arange(len(noisy)), client]
    ratios: Array = logsumexp(densities, axis=1) - np.log(len(deviations)) - own
    return ratios


def run_level(level: float, seed: int) -> tuple[float, float, float, float]:
    """Return both accuracies, and the median effective size and coverage of the exact weights."""
    random = np.random.default_rng(seed)
    mnist = source("mnist")
    rows = random.permutation(len(mnist.y_train))[:SAMPLES]
    tests = random.permutation(len(mnist.y_test))[:TESTS]
    deviations = np.sqrt(level * np.arange(1, CLIENTS + 1) / CLIENTS)

    def noised(images: Any, owner: NDArray[np.int64]) -> tuple[Array, Array]:
        clean = images.reshape(len(images), -1) / 255.0
        noise = deviations[owner, None] * random.standard_normal(clean.shape)
        return clean, np.clip(clean + noise, 0, 1)

    owner = np.repeat(np.arange(CLIENTS), SAMPLES // CLIENTS)
    clean, noisy = noised(mnist.x_train[rows], owner)
    _, noisy_test = noised(mnist.x_test[tests], random.integers(CLIENTS, size=TESTS))
    ratios = log_ratios(noisy, clean, owner, deviations)
    federation = Federation.from_arrays(
        noisy.astype(np.float32), mnist.y_train[rows], owner, holdout=0, classes=10, seed=seed,
        common=(noisy_test.astype(np.float32), mnist.y_test[tests]),
    )  # fmt: skip
    own = [torch.from_numpy(ratios[owner == k]) for k in range(CLIENTS)]
    exact = FedDisk(estimator="oracle", exact=lambda k, _: own[k])
    accuracies = [
        100 * us.train(federation, method, seed=seed, **TASK).last("global")
        for method in ("fedavg", exact)
    ]
    weights = [weights_from(one, exact.clip) for one in own]
    return (
        accuracies[0],
        accuracies[1],
        median(w.effective for w in weights),
        median(w.coverage for w in weights),
    )


def main() -> None:
    """Run all levels and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    requested = parser.parse_args()
    warnings.simplefilter("ignore", UnskewWarning)
    print("| level | FedAvg | exact weights | difference | effective samples | coverage |")
    print("|---:|---:|---:|---:|---:|---:|")
    for level in LEVELS:
        found = [run_level(level, seed) for seed in range(requested.seeds)]
        base, exact, effective, coverage = zip(*found, strict=True)
        gains = [one - other for one, other in zip(exact, base, strict=True)]
        spread = stdev(gains) if len(gains) > 1 else 0.0
        print(
            f"| {level:g} | {mean(base):.2f} % | {mean(exact):.2f} % | {mean(gains):+.2f} ± "
            f"{spread:.2f} | {mean(effective):.0%} | {mean(coverage):.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
