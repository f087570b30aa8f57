"""Whether training in bf16 is as accurate as in float32, by the verdicts' test of equivalence.

    python -m benchmarks.precision --out runs/precision

FedAvg on 2,000 images of MNIST, 10 clients with skewed labels, LeNet-5 without and with BatchNorm.
Both precisions share each seed's partition, initial weights and batches, so differences are taken
seed by seed. A processor without bf16 computes the same numbers, but slowly.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import unskew as us
from unskew.data.federation import Federation
from unskew.stats import judge

TRAINING: dict[str, Any] = {
    "rounds": 20,
    "batch_size": 20,
    "lr": 0.02,
    "momentum": 0.9,
    "evaluate_every": 1,
    "device": "cpu",
    "workers": 1,
}
NETWORKS = ("lenet5", "lenet5:norm=batch")
PRECISIONS = ("float32", "bf16")


def federation(seed: int) -> Federation:
    """Return the federation of a seed."""
    return us.load("mnist", skew="dirichlet:alpha=1", clients=10, samples=2000, seed=seed)


def accuracies(network: str, precision: str, seeds: int, out: Path, jobs: int) -> list[float]:
    """Return the accuracy of each seed, in per cent."""
    folder = out / f"{network.replace(':', '-')}-{precision}"
    train = partial(us.compare, federation, "fedavg", model=network, precision=precision)
    runs = train(seeds=seeds, out=folder, jobs=jobs, **TRAINING)
    return [100 * run.final_value("global") for run in runs]


def main() -> None:
    """Print one row per network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--out", type=Path, default=Path("runs/precision"))
    arguments = parser.parse_args()
    print("| network | float32 | bf16 | difference | 95 % interval | answer |")
    print("|---|---:|---:|---:|---:|---|")
    for network in arguments.networks:
        values = {
            precision: accuracies(
                network, precision, arguments.seeds, arguments.out, arguments.jobs
            )
            for precision in PRECISIONS
        }
        (pair,) = judge(values, baseline="float32").pairs
        means = [sum(each) / len(each) for each in values.values()]
        interval = f"{pair.low:+.2f} to {pair.high:+.2f}"
        cells = [*(f"{mean:.2f}" for mean in means), f"{pair.difference:+.2f}", interval]
        print(f"| `{network}` | {' | '.join(cells)} | {pair.answer} |", flush=True)


if __name__ == "__main__":
    main()
