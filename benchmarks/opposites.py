"""FedDisk's estimators on a federation for which the exact sample weights are known.

    python -m benchmarks.opposites --seeds 10

Two clients with opposite densities (`unskew.data.opposites`), a linear model, four rounds of 400
full-batch steps. Prints, for each estimator, the test loss, its difference to FedAvg's, the share
of the exact weights' gain, and the correlation of log weights with the exact ones. With --figure,
plots estimated against exact weights of the first seed.
"""

import argparse
import warnings
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch

import unskew as us
from unskew.data.opposites import Opposites, opposites
from unskew.errors import UnskewWarning
from unskew.methods.feddisk.method import FedDisk
from unskew.runs.run import Run

TASK: dict[str, Any] = {
    "model": "logistic",
    "rounds": 4,
    "steps": 400,
    "batch_size": 2000,
    "lr": 0.5,
    "evaluate_every": 4,
}
OPTIMIZERS = {
    "Adam 1e-3": {"ratio_lr": 1e-3},
    "SGD 0.1": {"ratio_lr": 0.1, "ratio_optimizer": "sgd"},
    "SGD 0.01": {"ratio_lr": 0.01, "ratio_optimizer": "sgd"},
}

WEIGHTS = "feddisk/sample_weights"
"""The name of the sample weights in a client's state."""


def exact_weights(case: Opposites) -> FedDisk:
    """Return FedDisk with the exact density ratios."""
    return FedDisk(
        estimator="oracle", exact=lambda k, x: torch.from_numpy(case.log_ratio(k, x.numpy()))
    )


def methods(case: Opposites) -> dict[str, FedDisk]:
    """Return FedDisk with every estimator, the two trained ones with three optimizers each."""
    found = {
        "exact ratio": exact_weights(case),
        "oracle": FedDisk(estimator="oracle"),
        "loglik": FedDisk(estimator="loglik"),
    }
    for estimator in ("generative", "classifier"):
        for label, options in OPTIMIZERS.items():
            found[f"{estimator}, {label}"] = FedDisk(estimator=estimator, **options)  # type: ignore[arg-type]
    return found


def estimated(run: Run, case: Opposites) -> list[tuple[Any, Any]]:
    """Return each client's exact log weights and those estimated by the run."""
    train = case.federation.train
    return [
        (case.log_ratio(k, train.client(k)[0]), run.states[k][WEIGHTS].log().numpy())
        for k in run.states
        if WEIGHTS in run.states[k]
    ]


def correlation(pairs: list[tuple[Any, Any]]) -> float:
    """Return the mean correlation over clients; it is 0 for weights that are all equal."""
    return mean(
        float(np.corrcoef(exact, found)[0, 1]) if np.ptp(found) > 1e-6 else 0.0
        for exact, found in pairs
    )


def draw(panels: dict[str, list[tuple[Any, Any]]], path: Path) -> None:
    """Plot estimated against exact log weights, one panel per estimator."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.1 * len(panels), 3.2), layout="constrained")
    for axes, (name, pairs) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        for k, (exact, found) in enumerate(pairs):
            axes.plot(exact, found, ".", ms=3, alpha=0.4, label=f"client {k}")
        axes.axline((0, 0), slope=1, color="#888", lw=1)
        axes.set(title=name, xlabel="exact log weight", ylabel="estimated")
    figure.axes[0].legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run all seeds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--figure", type=Path, help="file for the figure of the weights")
    found = parser.parse_args()
    warnings.simplefilter("ignore", UnskewWarning)
    losses: dict[str, list[float]] = {}
    correlations: dict[str, list[float]] = {}
    panels: dict[str, list[tuple[Any, Any]]] = {}
    for seed in range(found.first, found.first + found.seeds):
        case = opposites(seed=seed)
        for name, data in (("FedAvg", case.federation), ("pooled", case.pooled)):
            run = us.train(data, seed=seed, **TASK)
            losses.setdefault(name, []).append(run.last("global", "loss"))
        for name, method in methods(case).items():
            run = us.train(case.federation, method, seed=seed, **TASK)
            losses.setdefault(name, []).append(run.last("global", "loss"))
            if pairs := estimated(run, case):
                correlations.setdefault(name, []).append(correlation(pairs))
                panels.setdefault(name, pairs)
        print(f"seed {seed} done", flush=True)
    print("| | loss | difference to FedAvg | better | of the exact gain | correlation |")
    print("|---|---:|---:|---:|---:|---:|")
    average = losses["FedAvg"]
    gain = mean(average) - mean(losses["exact ratio"])
    for name, values in losses.items():
        differences = [value - base for value, base in zip(values, average, strict=True)]
        spread = stdev(differences) if len(differences) > 1 else 0.0
        better = sum(d < 0 for d in differences)
        correlated = f"{mean(correlations[name]):.2f}" if name in correlations else ""
        print(
            f"| {name} | {mean(values):.4f} | {mean(differences):+.4f} ± {spread:.4f} | "
            f"{better}/{len(values)} | {-mean(differences) / gain:.0%} | {correlated} |"
        )
    if found.figure is not None:
        shown = ("oracle", "generative, Adam 1e-3", "loglik", "classifier, SGD 0.01")
        draw({name: panels[name] for name in shown if name in panels}, found.figure)


if __name__ == "__main__":
    main()
