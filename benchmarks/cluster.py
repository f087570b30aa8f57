"""What a cluster adds to runs, and what a second worker gains.

    python -m benchmarks.cluster --on local ray dask:tcp://127.0.0.1:8786 --seconds 30

The rounds of these runs wait instead of computing, so that runs at the same time do not compete for
the cores of one machine. Each time is compared with the seconds that the runs themselves record for
their rounds: what remains is sending, starting, writing, reading and waiting. The times of a short
comparison are taken from those of a longer one, which leaves the start out.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import unskew as us
from unskew.methods import ServerSide

ROUNDS = 30


@dataclass(frozen=True)
class Waiting(ServerSide):
    """FedAvg with rounds that take a given time."""

    seconds: float = 1.0

    def receive(self, server: Any, uploads: Any) -> Any:
        """Wait."""
        time.sleep(self.seconds)
        return super().receive(server, uploads)


@dataclass(frozen=True)
class Times:
    """The seconds of a comparison, and those that its runs recorded."""

    elapsed: float
    recorded: float

    def __sub__(self, other: "Times") -> "Times":
        return Times(self.elapsed - other.elapsed, self.recorded - other.recorded)

    @property
    def busy(self) -> float:
        """How many runs were executed at the same time, on average."""
        return self.recorded / self.elapsed


def measure(on: str, runs: int, jobs: int, seconds: float) -> Times:
    """Measure a comparison of runs that take ``seconds`` each."""
    federation = us.load("digits", "iid", 4, samples=200)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        found = us.compare(
            federation,
            [Waiting(seconds / ROUNDS)],
            seeds=runs,
            model="logistic",
            rounds=ROUNDS,
            jobs=jobs,
            on=on,
            out=Path(folder) / "runs",
            progress=False,
        )
        elapsed = time.perf_counter() - started
    return Times(elapsed, sum(row["seconds"] for run in found for row in run.metrics))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", nargs="+", default=["local"])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--runs", type=int, default=4, help="runs per worker")
    options = parser.parse_args()
    print("| on | start, s | overhead per run | two workers against one |")
    print("|---|---:|---:|---:|")
    for on in options.on:
        measure(on, 2, 2, options.seconds / 10)  # workers that stay import what they need
        one, two = (
            (measure(on, jobs, jobs, options.seconds),
             measure(on, jobs * options.runs, jobs, options.seconds))
            for jobs in (1, 2)
        )  # fmt: skip
        single, double = one[1] - one[0], two[1] - two[0]
        # A run of another worker may end in the meantime, so the start is that of a single run.
        start = one[0].elapsed - one[0].recorded / single.busy
        print(
            f"| {on.partition(':')[0]} | {start:.1f} | {100 * (1 / single.busy - 1):.1f} % | "
            f"{double.busy / single.busy:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
