"""The peak memory of rounds, in stacks of the cohort's models.

    python -m benchmarks.round_memory

Trains an MLP of 2 million parameters with 20 clients for six rounds, in the pool of processes and
one client after the other, each in a process of its own. The stack is clients x parameters in
float32; the memory of the pool's workers is not included.
"""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

import unskew as us
from benchmarks.peak_memory import peak_above

CLIENTS, SAMPLES, FEATURES, HIDDEN, ROUNDS = 20, 20, 100, 18_000, 6


def peak(method: str, runner: str) -> float:
    """Return the peak memory of a run over the memory before it, in stacks."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(CLIENTS * SAMPLES, FEATURES)).astype(np.float32)
    y = rng.integers(0, 10, size=len(x))
    federation = us.Federation.from_arrays(x, y, np.repeat(np.arange(CLIENTS), SAMPLES), classes=10)
    options: Mapping[str, Any] = {
        "batch_size": 10, "evaluate_every": 0, "runner": runner, "workers": 2, "progress": False
    }  # fmt: skip
    us.train(federation, method, model="mlp:hidden=8", rounds=1, **options)
    megabytes = peak_above(
        lambda: us.train(federation, method, model=f"mlp:hidden={HIDDEN}", rounds=ROUNDS, **options)
    )
    parameters = (FEATURES + 1) * HIDDEN + (HIDDEN + 1) * 10
    return megabytes * 1e6 / (4 * CLIENTS * parameters)


def main() -> None:
    if len(sys.argv) == 3:
        print(f"{peak(sys.argv[1], sys.argv[2]):.1f}")
        return
    print("| method | pool | loop |\n|---|---:|---:|")
    for method in ("fedavg", "scaffold"):
        peaks = [
            subprocess.run(
                [sys.executable, "-m", "benchmarks.round_memory", method, runner],
                check=True, capture_output=True, text=True,
            ).stdout.strip()
            for runner in ("pool", "loop")
        ]  # fmt: skip
        print(f"| {method} | {' | '.join(peaks)} |")


if __name__ == "__main__":
    main()
