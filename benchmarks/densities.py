"""The time of FedDisk's stages in rounds of the task.

    python -m benchmarks.densities

MNIST with increasing noise on 100 clients with 510 training images each, the paper's network, one
epoch per round on all clients. Rounds of FedAvg are timed before and after each method, so that
the comparison does not depend on the machine's load at one moment.
"""

import argparse
from collections import defaultdict
from statistics import median

import unskew as us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--methods",
        nargs="+",
        default=["feddisk", "feddisk:estimator=classifier"],
        help="spec strings, separated by spaces",
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the task per timed run")
    found = parser.parse_args()
    fed = us.load("mnist", skew="noise:level=0.3", clients=100, holdout=0.15)
    print(f"{len(fed)} clients, {len(fed.train.y) / len(fed):.0f} training samples each\n")
    print("| stage | rounds | seconds | in rounds of the task |\n|---|---:|---:|---:|")
    for method in found.methods:
        plain = _seconds(fed, "fedavg", found.rounds)["task"]
        spent = _seconds(fed, method, found.rounds)
        plain += _seconds(fed, "fedavg", found.rounds)["task"]
        task = median(plain)
        stages = {stage: times for stage, times in spent.items() if stage != "task"}
        for stage, times in stages.items():
            _show(f"{method}: {stage}", times, task)
        everything = [each for times in stages.values() for each in times]
        _show(f"{method}: all stages", everything, task)
        print(f"| one round of FedAvg, median of {len(plain)} | 1 | {task:.2f} | 1.0 |", flush=True)


def _seconds(fed: us.Federation, method: str, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each round, by stage, without the first round of the task."""
    run = us.train(
        fed, method, model="feddisk-cnn:channels=16", rounds=rounds + 1, epochs=1, batch_size=32,
        lr=0.01, evaluate_every=0,
    )  # fmt: skip
    seconds: dict[str, list[float]] = defaultdict(list)
    for row in run.metrics:
        seconds[row["stage"]].append(row["seconds"])
    del seconds["task"][0]
    return seconds


def _show(title: str, times: list[float], task: float) -> None:
    print(f"| {title} | {len(times)} | {sum(times):.1f} | {sum(times) / task:.1f} |")


if __name__ == "__main__":
    main()
