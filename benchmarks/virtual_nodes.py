"""Seconds per round of ``engine="flower-ray"``, against the plain loop in the same process.

    python -m benchmarks.virtual_nodes

Needs ``pip install "unskew[flower-ray]"``. FedAvg with the default MLP, 20
samples of noise a client.
"""

from statistics import median
from typing import Any

import numpy as np

import unskew as us

SIZES = ((100, 100), (1000, 100), (1000, 1000))
SAMPLES, ROUNDS = 20, 3


def main() -> None:
    print("| virtual clients | a round trains | seconds on Ray | the plain loop | ratio |")
    print("|---:|---:|---:|---:|---:|")
    for clients, cohort in SIZES:
        ray = _seconds(clients, cohort, engine="flower-ray")
        loop = _seconds(clients, cohort, runner="loop")
        row = f"| {clients:,} | {cohort:,} | {ray:.2f} | {loop:.2f} |"
        print(f"{row} {ray / loop:.1f} |", flush=True)


def _seconds(clients: int, cohort: int, **how: Any) -> float:
    """Return the median of the rounds after the first, which waits for workers."""
    rng = np.random.default_rng(0)
    total = clients * SAMPLES
    x, y = rng.random((total, 64), dtype=np.float32), rng.integers(0, 10, total)
    federation = us.Federation.from_arrays(x, y, np.repeat(np.arange(clients), SAMPLES))
    run = us.train(
        federation,
        "fedavg",
        model="mlp",
        rounds=ROUNDS + 1,
        cohort=cohort,
        evaluate_every=0,
        progress=False,
        **how,
    )
    return float(median(row["seconds"] for row in run.metrics[1:]))


if __name__ == "__main__":
    main()
