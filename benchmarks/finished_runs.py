"""The processor time of a comparison whose runs are all finished.

    python -m benchmarks.finished_runs

Runs ``unskew compare`` twice on the digits: ten methods, twenty seeds, ten rounds. The second call
reads the 200 runs and writes the page again. ``unskew methods`` shows how much of that is the start
of Python and its packages.
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

METHODS = "fedavg,mean,fedprox,median,ida,fedavgm,fednova,scaffold,feddyn,fedadam"
COMPARE = (
    "compare", "--data", "digits", "--skew", "dirichlet:alpha=0.3", "--clients", "10",
    "--methods", METHODS, "--rounds", "10", "--seeds", "20", "--out",
)  # fmt: skip


def seconds(*command: str) -> float:
    """Return the processor time of a command and its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "unskew", *command], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "runs")
        first = seconds(*COMPARE, out)
        second = min(seconds(*COMPARE, out) for _ in range(3))
    start = min(seconds("methods") for _ in range(3))
    print("| command | processor seconds | ratio |\n|---|---:|---:|")
    for name, value in (("first call", first), ("second call", second), ("start alone", start)):
        print(f"| {name} | {value:.1f} | {value / start:.1f} |")


if __name__ == "__main__":
    main()
