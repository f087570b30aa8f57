"""How long a comparison takes whose runs are all finished.

    python -m benchmarks.finished_runs

Runs ``unskew compare`` twice on the digits: ten methods, twenty seeds, ten rounds. The second call
reads the 200 runs and writes the page again. ``unskew methods`` shows how much of that is the start
of Python and its packages.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

METHODS = "fedavg,mean,fedprox,median,ida,fedavgm,fednova,scaffold,feddyn,fedadam"
COMPARE = (
    "compare", "--data", "digits", "--skew", "dirichlet:alpha=0.3", "--clients", "10",
    "--methods", METHODS, "--rounds", "10", "--seeds", "20", "--out",
)  # fmt: skip


def seconds(*command: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "unskew", *command], check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "runs")
        first = seconds(*COMPARE, out)
        second = min(seconds(*COMPARE, out) for _ in range(3))
    start = min(seconds("methods") for _ in range(3))
    print("| command | seconds | ratio |\n|---|---:|---:|")
    for name, value in (("first call", first), ("second call", second), ("start alone", start)):
        print(f"| {name} | {value:.1f} | {value / start:.1f} |")


if __name__ == "__main__":
    main()
