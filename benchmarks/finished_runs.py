"""The processor time of a comparison whose runs are all finished.

    python -m benchmarks.finished_runs

Runs ``unskew compare`` on the digits: ten methods, twenty seeds, ten rounds. The same command again
finds that nothing has changed and prints the recorded output; without the record, it reads the 200
runs and writes the page again. ``import torch`` and ``unskew methods`` show how much of that is the
start of Python and its packages. All modules are compiled, as they are when pip has installed them.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from unskew.cli.recorded_output import RECORD

METHODS = "fedavg,mean,fedprox,median,ida,fedavgm,fednova,scaffold,feddyn,fedadam"
COMPARE = (
    "compare", "--data", "digits", "--skew", "dirichlet:alpha=0.3", "--clients", "10",
    "--methods", METHODS, "--rounds", "10", "--seeds", "20", "--out",
)  # fmt: skip


def seconds(*arguments: str, without: Path | None = None) -> float:
    """Return the processor time of Python and its processes, after a file is removed."""
    if without is not None:
        without.unlink()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "compiled")
        compare = ("-m", "unskew", *COMPARE, str(Path(folder) / "runs"))
        commands = {
            "the same again": compare,
            "`unskew methods`": ("-m", "unskew", "methods"),
            "`import torch`": ("-c", "import torch"),
        }
        times = {"`unskew compare`, 200 runs, first call": seconds(*compare)}
        times |= {name: min(seconds(*each) for _ in range(4)) for name, each in commands.items()}
        record = Path(folder) / "runs" / RECORD
        times["without the record"] = min(seconds(*compare, without=record) for _ in range(4))
    start = times["`import torch`"]
    print("| command | processor time, s | in imports of torch |\n|---|---:|---:|")
    for name, value in times.items():
        print(f"| {name} | {value:.1f} | {value / start:.1f} |")


if __name__ == "__main__":
    main()
