"""The time of a client's Adam step relative to torch's step without fusing.

    python -m benchmarks.adam

Alternates between both, in one thread and on the same gradients.
"""

from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from benchmarks.aggregation import timed
from unskew.engine.optimizer import Adam

SIZES = (100, 60_000, 1_066_000)
"""The last is about the size of the beta-VAE 784-512-256-2 of the latent-discrepancy thesis."""

STEPS = 101


def main() -> None:
    torch.set_num_threads(1)
    print(
        "| weights | not fused, microseconds | fused | fused / not fused |\n|---:|---:|---:|---:|"
    )
    for size in SIZES:
        weights, gradient = torch.randn(size), torch.randn(size)
        steps = torch_step(weights.clone(), gradient), unskew_step(weights, gradient)
        times = [[timed(step) for step in steps] for _ in range(STEPS)]
        unfused, fused = (1e6 * median(column) for column in zip(*times, strict=True))
        print(f"| {size:,} | {unfused:.0f} | {fused:.0f} | {fused / unfused:.2f} |")


def torch_step(weights: Tensor, gradient: Tensor) -> Callable[[], object]:
    weights.grad = gradient
    return torch.optim.Adam([weights], lr=1e-3, foreach=False, fused=False).step


def unskew_step(weights: Tensor, gradient: Tensor) -> Callable[[], object]:
    optimizer = Adam(1e-3, weight_decay=0.0)
    return lambda: optimizer.step(weights, gradient)


if __name__ == "__main__":
    main()
