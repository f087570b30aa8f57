"""Where FedDisk's sample weights help: the gain over FedAvg by local steps and overlap.

    python -m benchmarks.feddisk_map --seeds 3 --figure docs/methods/feddisk-map.png

Two clients with two domains in opposite proportions (`unskew.data.opposites`) and a linear model.
The overlap is twice the share of its rarer domain in a client: 1 if both clients have the same
density, 0 if each has a domain of its own. Every run takes 400 full-batch steps per client; the
number of steps between two averages varies. Prints the test loss of FedAvg minus that with exact
weights, and with weights learned by the default estimator, for every cell. Learned weights do not
depend on the local steps, so they are learned once per overlap and seed.
"""

import argparse
import warnings
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import unskew as us
from benchmarks.opposites import WEIGHTS, exact_weights
from unskew.data.opposites import Opposites, opposites
from unskew.errors import UnskewWarning
from unskew.methods.feddisk.method import FedDisk

TOTAL = 400
STEPS = (4, 20, 100, 400)
SHARES = (0.6, 0.75, 0.9, 0.97, 1.0)
Cell = tuple[float, int]


def loss_of(case: Opposites, method: FedDisk | str, steps: int, seed: int) -> float:
    """Return the test loss after all steps, averaged every ``steps``."""
    rounds = TOTAL // steps
    run = us.train(
        case.federation, method, seed=seed, model="logistic", rounds=rounds, steps=steps,
        batch_size=2000, lr=0.5, evaluate_every=rounds,
    )  # fmt: skip
    return run.last("global", "loss")


def learned_weights(case: Opposites, seed: int) -> FedDisk:
    """Return FedDisk with the weights that the default estimator learns, to be used again."""
    run = us.train(
        case.federation, FedDisk(), seed=seed, model="logistic", rounds=1, steps=1,
        batch_size=2000, lr=0.5,
    )  # fmt: skip
    found = {k: run.states[k][WEIGHTS].double().log() for k in run.states}
    return FedDisk(estimator="oracle", exact=lambda k, _: found[k])


def gains(seeds: int) -> dict[str, dict[Cell, list[float]]]:
    """Return the gains over FedAvg by kind of weights, cell and seed."""
    found: dict[str, dict[Cell, list[float]]] = {"exact": {}, "learned": {}}
    for share in reversed(SHARES):
        for seed in range(seeds):
            case = opposites(seed=seed, share=share)
            methods = {"exact": exact_weights(case), "learned": learned_weights(case, seed)}
            for steps in STEPS:
                base = loss_of(case, "fedavg", steps, seed)
                for name, method in methods.items():
                    gain = base - loss_of(case, method, steps, seed)
                    found[name].setdefault((share, steps), []).append(gain)
        print(f"overlap {overlap(share):g} done", flush=True)
    return found


def overlap(share: float) -> float:
    """Return the overlap of the clients' densities, from 0 (a domain each) to 1 (the same)."""
    return round(2 * (1 - share), 4)


def print_table(kind: str, cells: dict[Cell, list[float]]) -> None:
    """Print mean and standard deviation over seeds, one row per overlap."""
    print(f"\n| {kind} weights: overlap | " + " | ".join(f"{n} steps" for n in STEPS) + " |")
    print("|---|" + "---:|" * len(STEPS))
    for share in SHARES:
        row = [cells[share, steps] for steps in STEPS]
        texts = [f"{mean(v):+.4f} ± {stdev(v) if len(v) > 1 else 0:.4f}" for v in row]
        print(f"| {overlap(share):g} | " + " | ".join(texts) + " |")


def draw(found: dict[str, dict[Cell, list[float]]], path: Path) -> None:
    """Draw one map per kind of weights: blue is a gain over FedAvg, red a loss."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    limit = max(abs(mean(v)) for cells in found.values() for v in cells.values())
    image: Any = None
    for axes, (kind, cells) in zip(figure.subplots(1, 2), found.items(), strict=True):
        values = [[mean(cells[share, steps]) for steps in STEPS] for share in SHARES]
        image = axes.imshow(values, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                dark = abs(value) > 0.6 * limit
                axes.text(j, i, f"{1000 * value:+.0f}", ha="center", va="center",
                          color="white" if dark else "black", fontsize=8)  # fmt: skip
        axes.set_xticks(range(len(STEPS)), [str(n) for n in STEPS])
        axes.set_yticks(range(len(SHARES)), [f"{overlap(share):g}" for share in SHARES])
        axes.set(title=f"{kind} weights", xlabel="local steps per round", ylabel="overlap")
    figure.colorbar(image, ax=figure.axes, label="FedAvg's test loss minus FedDisk's")
    figure.suptitle("Gain over FedAvg (numbers: thousandths)", fontsize=10)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run all cells and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--figure", type=Path, help="file for the figure of both maps")
    requested = parser.parse_args()
    warnings.simplefilter("ignore", UnskewWarning)
    found = gains(requested.seeds)
    for kind, cells in found.items():
        print_table(kind, cells)
    if requested.figure is not None:
        draw(found, requested.figure)


if __name__ == "__main__":
    main()
