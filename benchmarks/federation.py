"""Time and memory of the operations on a federation of many small clients.

    python -m benchmarks.federation [CLIENTS]

One million clients by default, each with ten 8x8 images. Seconds are the smaller of two runs;
memory is what numpy allocates in a third run, as traced by tracemalloc.
"""

import resource
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable

from unskew.data.federation import Federation

SAMPLES_EACH = 10
READS = 10_000
T = TypeVar("T")


def main(clients: int) -> None:
    rng = np.random.default_rng(0)
    samples = clients * SAMPLES_EACH
    x = rng.integers(0, 256, (samples, 8, 8), np.uint8)
    y = rng.integers(0, 10, samples, np.uint8)
    ids = np.repeat(np.arange(clients), SAMPLES_EACH)
    shuffled = rng.permutation(ids)
    to_read = rng.integers(0, clients, READS).tolist()

    raw = x.nbytes + y.nbytes
    table = RichTable("step", "seconds", "kept MB", "peak MB", "peak / raw bytes")
    table.title = f"{clients:,} clients, {samples:,} samples, {raw / 1e6:,.0f} MB raw"

    def measured(step: str, work: Callable[[], T]) -> T:
        seconds = min(_seconds(work), _seconds(work))
        tracemalloc.start()
        result = work()
        kept, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        numbers = f"{seconds:.3f}", f"{kept / 1e6:,.0f}", f"{peak / 1e6:,.0f}", f"{peak / raw:.2f}"
        table.add_row(step, *numbers)
        return result

    federation = measured("from_arrays, ids sorted", lambda: Federation.from_arrays(x, y, ids))
    measured("from_arrays, ids shuffled", lambda: Federation.from_arrays(x, y, shuffled))
    measured("label counts", lambda: federation.train.label_counts(10))
    measured("hold out 20 %", lambda: federation.held_out(0.2))
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder)
        measured("save", lambda: federation.save(saved))
        mapped = measured("open, memory-mapped", lambda: Federation.open(saved))
        measured(f"read {READS:,} clients, in memory", lambda: _read(federation, to_read))
        measured(f"read {READS:,} clients, mapped", lambda: _read(mapped, to_read))
    Console().print(table)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    Console().print(f"largest resident set: {megabytes:,.0f} MB, including the raw arrays")


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _read(federation: Federation, clients: list[int]) -> int:
    """Sum every byte of the clients, so that mapped pages are read from disk."""
    total = 0
    for client in clients:
        features, _ = federation.train.client(client)
        total += int(features.sum())
    return total


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
