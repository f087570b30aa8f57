"""What server rules cost, as multiples of one pass over the stack: `python -m benchmarks.rules`

The pass is `torch.sum` over the same matrix. Every rule is timed in turns with it, so that the
machine's moods hit both. Memory is the peak above what stood before, in stacks.
"""

import argparse
import gc
import resource
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from unskew.layout import Layout
from unskew.models import make
from unskew.rules import (
    Uploads,
    by_samples,
    coordinate_median,
    fedsa,
    geometric_median,
    inverse_distance,
    krum,
    multi_krum,
    trimmed_mean,
    uniform,
    weighted_mean,
)

RULES: dict[str, Callable[[Uploads], Tensor]] = {
    "mean": weighted_mean(uniform()),
    "fedavg": weighted_mean(by_samples()),
    "ida": weighted_mean(inverse_distance()),
    "rfa": geometric_median(),
    "krum": krum(3),
    "multi-krum": multi_krum(3, 10),
    "trimmed mean": trimmed_mean(0.2),
    "median": coordinate_median(),
    "fedsa": fedsa(),
}


def uploads_of(clients: int, layout: Layout) -> Uploads:
    generator = torch.Generator().manual_seed(0)
    stack = torch.randn(clients, layout.size, generator=generator).mul_(0.01)
    stack += torch.randn(layout.size, generator=generator) * 0.1
    return Uploads.of(stack, samples=list(range(1, clients + 1)), layout=layout)


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def play(title: str, uploads: Uploads, repetitions: int) -> None:
    size = uploads.stack.numel() * 4 / 1e9
    print(f"\n{title}: {len(uploads)} x {uploads.stack.shape[1]:,} ({size:.2f} GB)\n")
    print("| rule | passes | seconds | extra memory, in stacks |\n|---|---:|---:|---:|")
    for name, rule in RULES.items():
        gc.collect()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ratios, seconds = [], []
        timed(lambda rule=rule: rule(uploads))  # type: ignore[misc]
        for _ in range(repetitions):
            a_pass = timed(uploads.stack.sum)
            seconds.append(timed(lambda rule=rule: rule(uploads)))  # type: ignore[misc]
            ratios.append(seconds[-1] / a_pass)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1e6 / size
        print(
            f"| {name} | {median(ratios):.1f} | {median(seconds):.3f} | {grown:.2f} |", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    found = parser.parse_args()
    resnet = Layout.of(make("resnet18", (3, 32, 32), 10))
    play("ResNet-18, 20 clients", uploads_of(20, resnet), found.repetitions)
    play("LeNet-5, 1,000 clients", uploads_of(1000, Layout.of(make("lenet5", (1, 28, 28), 10))), 3)


if __name__ == "__main__":
    main()
