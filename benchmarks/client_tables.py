"""How much memory and log each evaluated round of a large federation adds.

    python -m benchmarks.client_tables [CLIENTS]

100,000 clients with two training samples and one test sample each, 50 of them in a round; every
round is evaluated on all clients. The growth is that from round 5 to round 20, per round, of a run
with a folder and of one without.
"""

import gc
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import unskew as us
from benchmarks.peak_memory import in_a_child

FIRST, LAST = 5, 20


def federation(clients: int) -> us.Federation:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3 * clients, 8)).astype(np.float32)
    y = rng.integers(0, 4, size=len(x))
    owners = np.repeat(np.arange(clients), 3)
    return us.Federation.from_arrays(x, y, owners, holdout=1 / 3, classes=4)


def growth(data: us.Federation, out: Path | None) -> tuple[float, float]:
    """Return the MB that a round adds to the memory in use and to the log of client tables."""
    sizes = {}

    def measure(round_: int, metrics: Mapping[str, Any]) -> None:
        del metrics
        if round_ in (FIRST, LAST):
            gc.collect()
            log = 0 if out is None else (out / "clients.jsonl").stat().st_size
            sizes[round_] = np.array([_resident(), log])

    us.train(
        data, model="logistic", rounds=LAST, cohort=50, batch_size=2, out=out, progress=measure
    )
    per_round = (sizes[LAST] - sizes[FIRST]) / (LAST - FIRST) / 1e6
    return float(per_round[0]), float(per_round[1])


def _resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def main() -> None:
    data = federation(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
    print("| run | memory, MB per round | log, MB per round |\n|---|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        memory, log = in_a_child(lambda: growth(data, Path(folder) / "run"))
        print(f"| in a folder | {memory:.2f} | {log:.3f} |")
    memory, _ = in_a_child(lambda: growth(data, None))
    print(f"| in memory | {memory:.2f} | |")


if __name__ == "__main__":
    main()
