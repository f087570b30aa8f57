"""The time and memory of aggregation rules.

    python -m benchmarks.aggregation --repetitions 3

Time is measured in passes over the stack of models: one pass is `torch.sum` of the same matrix with
the same threads, timed alternately with the rule, so that the machine's load affects both. Memory
is the peak above the stack, including the result. Runs on Linux only.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.peak_memory import in_a_child, peak_above
from unskew.aggregation import (
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
from unskew.aggregation.blocks import on_blocks
from unskew.aggregation.selection import sorted_columns
from unskew.models import make
from unskew.models.layout import Layout

RULES: dict[str, Callable[[Uploads], Tensor]] = {
    "mean": weighted_mean(uniform()),
    "fedavg": weighted_mean(by_samples()),
    "ida": weighted_mean(inverse_distance()),
    "rfa (4 steps)": geometric_median(),
    "krum": krum(3),
    "multi-krum": multi_krum(3, 10),
    "trimmed mean": trimmed_mean(0.2),
    "median": coordinate_median(),
    "fedsa": fedsa(),
    "fedsa, cv_scale=rank": fedsa(cv_scale="rank"),
}
REFERENCES: dict[str, Callable[[Tensor], Callable[[], object]]] = {
    "*bare matrix product, float64*": lambda stack: partial(_product_of, stack.double()),
    "*torch.sort, the same blocks*": lambda stack: partial(on_blocks, stack, _torch_sort),
    "*numpy's sort, the same blocks*": lambda stack: partial(on_blocks, stack, _numpy_sort),
}
REST = 0.05
RESNET_CLIENTS, SAMPLES, BATCH = 20, 500, 32
THREADS = torch.get_num_threads()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument(
        "--rules",
        nargs="+",
        choices=RULES,
        help="rules to measure (default: all, the references, and FedSA's share of a round)",
    )
    arguments = parser.parse_args()
    repetitions, chosen = arguments.repetitions, arguments.rules
    print(f"{THREADS} threads")
    resnet = Layout(Layout.of(make("resnet18", (3, 32, 32), 10)).parameters)
    lenet = Layout.of(make("lenet5", (1, 28, 28), 10))
    seconds = measure(
        "ResNet-18, trainable parameters", RESNET_CLIENTS, resnet, repetitions, chosen
    )
    measure("LeNet-5", 1000, lenet, repetitions, chosen)
    if chosen:
        return
    print(in_a_child(lambda: share_of_a_round(seconds["fedsa"])))


def measure(
    title: str, clients: int, layout: Layout, repetitions: int, chosen: list[str] | None
) -> dict[str, float]:
    """Print the table for one network and return the seconds of each rule."""
    uploads = uploads_of(clients, layout)
    stack = uploads.stack
    print(f"\n{title}: {clients:,} x {layout.size:,} ({stack.numel() * 4 / 1e6:,.0f} MB)\n")
    print("| rule | passes | seconds | peak MB above the stack |\n|---|---:|---:|---:|")
    works: dict[str, Callable[[], Callable[[], object]]] = {
        **{name: partial(make_work, stack) for name, make_work in REFERENCES.items()},
        **{name: partial(partial, rule, uploads) for name, rule in RULES.items()},
    }
    found = {}
    for name, make_work in works.items():
        if chosen and name not in chosen:
            continue
        passes, seconds, peak = in_a_child(partial(measured, make_work, stack, repetitions))
        print(f"| {name} | {passes:.1f} | {seconds:.3f} | {peak:,.0f} |", flush=True)
        found[name] = seconds
    return found


def measured(
    make_work: Callable[[], Callable[[], object]], stack: Tensor, repetitions: int
) -> tuple[float, float, float]:
    """Return the passes, the seconds and the peak memory in MB of a function."""
    torch.set_num_threads(THREADS)
    work = make_work()
    stack.sum()
    peak = peak_above(work)
    turns = [(timed_awake(stack.sum), timed_at_rest(work)) for _ in range(repetitions)]
    passes = median(seconds / a_pass for a_pass, seconds in turns)
    return passes, median(seconds for _, seconds in turns), peak


def uploads_of(clients: int, layout: Layout) -> Uploads:
    generator = torch.Generator().manual_seed(0)
    stack = torch.randn(clients, layout.size, generator=generator).mul_(0.01)
    stack += torch.randn(layout.size, generator=generator) * 0.1
    return Uploads.of(stack, samples=list(range(1, clients + 1)), layout=layout)


def timed(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    started = clock()
    work()
    return clock() - started


def timed_awake(work: Callable[[], object]) -> float:
    """Time a second call right after a first one, so that torch's threads are awake."""
    work()
    return timed(work)


def timed_at_rest(work: Callable[[], object]) -> float:
    """Time a call while torch's threads sleep, as they do when a server starts to aggregate.

    After an operation the threads spin for a few milliseconds, each on a core.
    """
    time.sleep(REST)
    return timed(work)


def share_of_a_round(seconds: float) -> str:
    """Describe what FedSA adds to a round of ResNet-18, extrapolated from steps of one client.

    Each client trains in one thread, and one client per core at a time, as in worker processes.
    """
    network = make("resnet18", (3, 32, 32), 10).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.rand(BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (BATCH,))

    def step() -> None:
        loss = cross_entropy(network(images), labels)
        torch.autograd.grad(loss, list(network.parameters()))

    step()
    a_step = median(timed(step, time.process_time) for _ in range(3))
    steps = RESNET_CLIENTS * -(-SAMPLES // BATCH)
    a_round = steps * a_step / THREADS
    return (
        f"\nFedSA for {RESNET_CLIENTS} ResNet-18s: {seconds:.2f} s, {seconds / a_round:.2%} of a "
        f"round of {SAMPLES} samples per client ({steps} steps of {a_step:.2f} CPU seconds for "
        f"batches of {BATCH} on {THREADS} cores, extrapolated from 3 steps)"
    )


def _product_of(rows: Tensor) -> Tensor:
    return rows @ rows.T


def _torch_sort(block: Tensor, *_: object) -> None:
    block.sort(dim=0)


def _numpy_sort(block: Tensor, scratch: Tensor, _: slice) -> None:
    sorted_columns(block, scratch)


if __name__ == "__main__":
    torch.set_num_threads(1)  # see in_a_child
    main()
