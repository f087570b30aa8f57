"""Seconds per round of unskew, of its peers, of a plain loop, and of a lower limit.

    python -m benchmarks.rounds --peers-python .venv-peers/bin/python

Each repetition runs all implementations one after the other, and unskew and the limit again after
each peer, so that the machine's load affects all of them; only ratios of medians are meaningful. On
a processor with bf16, networks with convolutions are timed in it too, also those of the peers on
PyTorch. Peers are separate programs (benchmarks/peers) and run in each layout that their
documentation recommends.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

import torch

from benchmarks.baselines import Limit, plain_rounds, unskew_rounds
from benchmarks.peers.layouts import REQUESTED
from benchmarks.workloads import WORKLOADS
from unskew.engine.precision import has_bf16

PEERS = {"Flower on Ray": "flower_ray", "pfl": "pfl_torch", "fedjax": "fedjax_jit"}
PRECISIONS = {"flower_ray": ("float32", "bf16"), "pfl_torch": ("float32", "bf16")}
"""The precisions that peers can train in; fedjax has float32 alone."""
ROOT = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--peers", nargs="*", choices=PEERS.values(), default=list(PEERS.values()))
    parser.add_argument(
        "--peers-python",
        default=sys.executable,
        help="Python interpreter of the environment in which the peers are installed",
    )
    parser.add_argument(
        "--layouts", nargs="+", help="layouts of peers to run, such as num_cpus=1; by default all"
    )
    parser.add_argument("--repetitions", type=int, default=3)
    found = parser.parse_args()
    if found.layouts:
        os.environ[REQUESTED] = ";".join(found.layouts)
    for name in found.workloads:
        seconds = _run(name, found.repetitions, found.peers, found.peers_python)
        _show(name, seconds)


def _run(name: str, repetitions: int, peers: list[str], python: str) -> dict[str, list[float]]:
    work = WORKLOADS[name]
    seconds: dict[str, list[float]] = defaultdict(list)
    halves = has_bf16(torch.device("cpu")) and len(work.shape) == 3
    limits = {precision: Limit(work, precision) for precision in ("float32", "bf16")[: 1 + halves]}
    for _ in range(repetitions):
        for precision, limit in limits.items():
            seconds[_label("unskew", precision)] += unskew_rounds(work, precision)
            seconds[_label("limit", precision)] += limit.rounds(work.rounds)
        seconds["plain loop"] += plain_rounds(work, max(2, work.rounds // 3))
        for title, module in PEERS.items():
            for precision, limit in limits.items():
                if module not in peers or precision not in PRECISIONS.get(module, ("float32",)):
                    continue
                print(f"{name}: {_label(title, precision)}", file=sys.stderr)
                found = _peer(module, name, work.peer_rounds, python, precision)
                for layout, times in found.items():
                    seconds[_label(f"{title}: {layout}", precision)] += times
                seconds[_label("unskew", precision)] += unskew_rounds(work, precision)
                seconds[_label("limit", precision)] += limit.rounds(work.rounds)
    for limit in limits.values():
        limit.close()
    return seconds


def _label(implementation: str, precision: str) -> str:
    return implementation if precision == "float32" else f"{implementation}, {precision}"


def _peer(
    module: str, workload: str, rounds: int, python: str, precision: str
) -> dict[str, list[float]]:
    """Run a peer's program; if it fails, report this on standard error and return no times."""
    command = [python, "-m", f"benchmarks.peers.{module}", workload, "--rounds", str(rounds)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PEERS_PRECISION": precision}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, timeout=900, check=False
    )
    try:
        layouts: dict[str, list[float]] = json.loads(done.stdout)
    except ValueError:
        print(f"{module} on {workload} reported no times", file=sys.stderr)
        return {}
    return layouts


def _show(name: str, seconds: dict[str, list[float]]) -> None:
    ours = [label for label in ("unskew", "unskew, bf16") if label in seconds]
    print(f"\n{name}: {WORKLOADS[name].title}\n")
    columns = ["implementation", "seconds per round (median)", "fastest"]
    columns += [f"{label} is faster by" for label in ours]
    print(f"| {' | '.join(columns)} |")
    print(f"|---|{'---:|' * (len(columns) - 1)}")
    for implementation, times in seconds.items():
        ratios = [f"{median(times) / median(seconds[label]):.2f}x" for label in ours]
        cells = [implementation, f"{median(times):.4f}", f"{min(times):.4f}", *ratios]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
