"""FedFusion's autoencoder: whether it separates groups of clients, its time, and accuracies.

python -m benchmarks.fusion groups     # separation by kind of codes and by width
python -m benchmarks.fusion time       # one refit for 50 clients
python -m benchmarks.fusion accuracy   # digits, compared with Mean and FedAvg
"""

import argparse
import time
from itertools import combinations
from statistics import mean, stdev

import torch
from torch import Tensor

from unskew.aggregation.fusion import Fusion
from unskew.aggregation.uploads import Uploads

SEEDS = 5


def groups(sizes: tuple[int, ...], features: int, seed: int) -> tuple[Uploads, Tensor]:
    """Return clients in groups: standard normal statistics around standard normal centres."""
    noise = torch.Generator().manual_seed(seed)
    group = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    centers = torch.randn(len(sizes), features, generator=noise)
    return Uploads.of(centers[group] + torch.randn(len(group), features, generator=noise)), group


def separation(shares: Tensor, group: Tensor) -> float:
    """Return the smallest total variation distance between two groups' mean allocations.

    1 is the best value: the groups share no component.
    """
    means = [shares[group == each].mean(0) for each in range(int(group.max()) + 1)]
    return min(float((a - b).abs().sum() / 2) for a, b in combinations(means, 2))


def table_of_groups() -> None:
    print("| clients | codes | widths | steps | separation (min .. max) | weight of each group |")
    print("|---|---|---|---|---|---|")
    for sizes, components in (((6, 6), 4), ((9, 3), 4), ((20, 15, 10, 5), 15)):
        for codes in ("client", "component"):
            for wide, narrow, steps in (
                (256, 128, 30),
                (512, 256, 30),
                (1024, 512, 30),
                (512, 256, 90),
            ):
                found, weights = [], []
                for seed in range(SEEDS):
                    uploads, group = groups(sizes, 2000, seed)
                    rule = Fusion(
                        components=components,
                        codes=codes,
                        wide=wide,
                        narrow=narrow,
                        steps=steps,
                        stats=lambda u: u.stack,
                        seed=seed,
                    )
                    described = rule.describe(uploads)
                    diagnostics = rule.explain(
                        uploads, rule.allocate(described, rule.refit(described))
                    )
                    found.append(separation(diagnostics["allocation"], group))
                    weights.append(
                        [float(diagnostics["weights"][group == g].sum()) for g in range(len(sizes))]
                    )
                shown = " ".join(f"{mean(each):.2f}" for each in zip(*weights, strict=True))
                print(
                    f"| {sizes} | {codes} | {wide}-{narrow} | {steps} "
                    f"| {mean(found):.2f} ({min(found):.2f} .. {max(found):.2f}) | {shown} |",
                    flush=True,
                )


def table_of_times() -> None:
    print(
        "| statistics | widths | CPU seconds per refit, one thread (best of 3) | stored numbers |"
    )
    print("|---|---|---|---|")
    for features in (256, 19200):
        uploads, _ = groups((50,), features, 0)
        for wide, narrow in ((512, 256), (1024, 512)):
            rule = Fusion(components=15, wide=wide, narrow=narrow, stats=lambda u: u.stack)
            seconds, kept = [], 0
            for _ in range(3):
                started = time.process_time()
                described = rule.describe(uploads)
                parameters = rule.refit(described)
                rule.allocate(described, parameters)
                seconds.append(time.process_time() - started)
                kept = len(parameters)
            print(f"| {features} | {wide}-{narrow} | {min(seconds):.2f} | {kept:,} |", flush=True)


def table_of_accuracy() -> None:
    import unskew as us
    from unskew.methods import Part
    from unskew.methods.fedfusion import FedFusion

    methods: dict[str, str | Part] = {
        "mean": "mean",
        "fedavg": "fedavg",
        "fedfusion": FedFusion(),
        "fedfusion:codes=client": FedFusion(codes="client"),
        "fedfusion:prior=samples": FedFusion(prior="samples"),
        "fedfusion:normalise=literal": FedFusion(normalise="literal"),
    }
    print(
        "| method | accuracy after 30 rounds, mean (sd) of 5 seeds | largest weight / mean weight |"
    )
    print("|---|---|---|")
    for name, method in methods.items():
        scores, largest = [], []
        for seed in range(SEEDS):
            federation = us.load("digits", skew="dirichlet:alpha=0.1", clients=20, seed=seed)
            run = us.train(
                federation,
                method,
                model="mlp:hidden=32,norm=batch",
                rounds=30,
                epochs=2,
                lr=0.05,
                evaluate_every=30,
                seed=seed,
            )
            scores.append(run.metrics[-1]["global"]["accuracy"])
            weights = [t["weight"] for t in run.client_tables if t["kind"] == "round"][-1]
            largest.append(max(weights) / mean(weights))
        print(
            f"| {name} | {mean(scores):.3f} ({stdev(scores):.3f}) | {mean(largest):.2f} |",
            flush=True,
        )


TABLES = {"groups": table_of_groups, "time": table_of_times, "accuracy": table_of_accuracy}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=TABLES)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    TABLES[chosen.table]()
