"""What a cluster adds to runs, and what a second worker gains.

    python -m benchmarks.cluster --on local ray dask:tcp://127.0.0.1:8786 --seconds 30

The rounds of these runs wait instead of computing, so that runs at the same time do not compete for
the cores of one machine: what is measured is starting, sending, progress, writing and reading. The
time of a command with one run, taken from that of one with several, leaves the time per run.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import unskew as us
from unskew.methods import ServerSide

ROUNDS = 30


@dataclass(frozen=True)
class Waiting(ServerSide):
    """FedAvg with rounds that take a given time."""

    seconds: float = 1.0

    def receive(self, server: object, uploads: object) -> None:
        time.sleep(self.seconds)
        return super().receive(server, uploads)  # type: ignore[arg-type,return-value]


def measure(on: str, folder: Path, runs: int, jobs: int, seconds: float) -> float:
    """Return the seconds of a comparison of runs that take ``seconds`` each."""
    federation = us.load("digits", "iid", 4, samples=200)
    started = time.perf_counter()
    us.compare(
        federation,
        [Waiting(seconds / ROUNDS)],
        seeds=runs,
        model="logistic",
        rounds=ROUNDS,
        jobs=jobs,
        on=None if on == "local" else on,
        out=folder,
        progress=False,
    )
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", nargs="+", default=["local"])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--runs", type=int, default=4)
    options = parser.parse_args()
    print(f"runs of {options.seconds:g} s; times in seconds")
    print("| on | start | per run | overhead per run | two workers against one |")
    print("|---|---:|---:|---:|---:|")
    for on in options.on:
        with tempfile.TemporaryDirectory() as folder:
            cases = {"one": (1, 1), "several": (options.runs, 1), "pair": (2, 2),
                     "pairs": (2 * options.runs, 2)}  # fmt: skip
            taken = {
                name: measure(on, Path(folder) / name, runs, jobs, options.seconds)
                for name, (runs, jobs) in cases.items()
            }
        per_run = (taken["several"] - taken["one"]) / (options.runs - 1)
        per_pair = (taken["pairs"] - taken["pair"]) / (options.runs - 1)
        start, overhead = taken["one"] - per_run, per_run / options.seconds - 1
        name = on.partition(":")[0]
        print(
            f"| {name} | {start:.1f} | {per_run:.2f} | {100 * overhead:.1f} % | "
            f"{2 * per_run / per_pair:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
