"""The peak memory of rounds, in stacks of the cohort's models.

    python -m benchmarks.round_memory

Trains an MLP of 2 million parameters with 20 and 40 clients for six rounds, with each runner in a
process of its own. The stack is clients x parameters in float32; the memory of worker processes
is not included.
"""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

import unskew as us
from benchmarks.peak_memory import peak_above

SAMPLES, FEATURES, HIDDEN, ROUNDS = 20, 100, 18_000, 6
RUNNERS = ("processes", "loop", "vectorised")


def peak(method: str, runner: str, clients: int) -> float:
    """Return the peak memory of a run over the memory before it, in stacks."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(clients * SAMPLES, FEATURES)).astype(np.float32)
    y = rng.integers(0, 10, size=len(x))
    federation = us.Federation.from_arrays(x, y, np.repeat(np.arange(clients), SAMPLES), classes=10)
    options: Mapping[str, Any] = {
        "batch_size": 10, "evaluate_every": 0, "runner": runner, "workers": 2, "progress": False
    }  # fmt: skip
    us.train(federation, method, model="mlp:hidden=8", rounds=1, **options)
    megabytes = peak_above(
        lambda: us.train(federation, method, model=f"mlp:hidden={HIDDEN}", rounds=ROUNDS, **options)
    )
    parameters = (FEATURES + 1) * HIDDEN + (HIDDEN + 1) * 10
    return megabytes * 1e6 / (4 * clients * parameters)


def main() -> None:
    if len(sys.argv) == 4:
        print(f"{peak(sys.argv[1], sys.argv[2], int(sys.argv[3])):.1f}")
        return
    print(f"| method | clients | {' | '.join(RUNNERS)} |\n|---|---:{'|---:' * len(RUNNERS)}|")
    for method in ("fedavg", "scaffold"):
        for clients in ("20", "40"):
            peaks = [
                subprocess.run(
                    [sys.executable, "-m", "benchmarks.round_memory", method, runner, clients],
                    check=True, capture_output=True, text=True,
                ).stdout.strip()
                for runner in RUNNERS
            ]  # fmt: skip
            print(f"| {method} | {clients} | {' | '.join(peaks)} |", flush=True)


if __name__ == "__main__":
    main()
