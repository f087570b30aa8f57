"""Seconds per round of ``engine="flower-ray"`` and of the plain loop in the same process.

    python -m benchmarks.virtual_nodes

FedAvg with the default MLP and 20 random samples per client. Needs
``pip install ".[flower-ray]"``.
"""

from statistics import median
from typing import Any

import numpy as np

import unskew as us

SIZES = ((100, 100), (1000, 100), (1000, 1000))
SAMPLES, ROUNDS = 20, 3


def main() -> None:
    print(
        "| virtual clients | clients per round | seconds per round on Ray "
        "| seconds per round in the plain loop | ratio |"
    )
    print("|---:|---:|---:|---:|---:|")
    for clients, cohort in SIZES:
        ray = _seconds(clients, cohort, engine="flower-ray")
        loop = _seconds(clients, cohort, runner="loop")
        row = f"| {clients:,} | {cohort:,} | {ray:.2f} | {loop:.2f} |"
        print(f"{row} {ray / loop:.1f} |", flush=True)


def _seconds(clients: int, cohort: int, **how: Any) -> float:
    """Return the median seconds per round, without the first, which waits for workers to start."""
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
