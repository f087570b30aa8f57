"""The cost of a client's Adam step relative to torch's unfused one.

`python -m benchmarks.adam`: one thread; both in turns, on the same gradients.
"""

from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from benchmarks.aggregation import timed
from unskew.engine.optimizer import Adam

SIZES = (100, 60_000, 1_066_000)
"""The last is the beta-VAE 784-512-256-2 of the thesis."""

STEPS = 101


def main() -> None:
    torch.set_num_threads(1)
    print("| weights | torch, microseconds | ours | ours / torch |\n|---:|---:|---:|---:|")
    for size in SIZES:
        weights, gradient = torch.randn(size), torch.randn(size)
        works = torch_step(weights.clone(), gradient), unskew_step(weights, gradient)
        turns = [[timed(work) for work in works] for _ in range(STEPS)]
        theirs, ours = (1e6 * median(column) for column in zip(*turns, strict=True))
        print(f"| {size:,} | {theirs:.0f} | {ours:.0f} | {ours / theirs:.2f} |")


def torch_step(weights: Tensor, gradient: Tensor) -> Callable[[], object]:
    weights.grad = gradient
    return torch.optim.Adam([weights], lr=1e-3, foreach=False, fused=False).step


def unskew_step(weights: Tensor, gradient: Tensor) -> Callable[[], object]:
    optimizer = Adam(1e-3, weight_decay=0.0)
    return lambda: optimizer.step(weights, gradient)


if __name__ == "__main__":
    main()
