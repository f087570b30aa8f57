"""The time of a private gradient relative to a plain one.

    python -m benchmarks.privacy

20 clients, batches of 32, a 784-30-784 network (47,854 weights). Times are CPU times of one thread,
divided by the time of the plain gradient of the same batch, for several limits on the memory of a
block. "clip, then sum" is what unskew does. "norms, then backward" computes the norms the same way,
discards the per-sample gradients, and sums the clipped ones in a second backward pass.
"""

import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, vmap

from unskew.models.functional import FunctionalModel
from unskew.privacy import gradient as subject
from unskew.privacy import private_gradient

CLIENTS, BATCH, PIXELS, HIDDEN, CLIP, REPEATS = 20, 32, 784, 30, 1.0, 5
NETWORK = FunctionalModel(
    nn.Sequential(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, PIXELS))
)


def losses_of(weights: Tensor, x: Tensor) -> Tensor:
    scores = NETWORK(weights, {}, x)
    return F.softplus(scores).sum(-1) - (x * scores).sum(-1)


def loss_of_one(weights: Tensor, x: Tensor) -> Tensor:
    return losses_of(weights, x.unsqueeze(0)).squeeze(0)


def plain(weights: Tensor, x: Tensor) -> Tensor:
    leaf = weights.detach().requires_grad_()
    return torch.autograd.grad(vmap(losses_of)(leaf, x).sum() / BATCH, leaf)[0]


def clip_then_sum(weights: Tensor, x: Tensor, numbers: int) -> Tensor:
    subject._BLOCK_NUMBERS = numbers
    gradient, _ = private_gradient(
        loss_of_one,
        weights,
        [x],
        torch.ones(x.shape[:2]),
        clip=CLIP,
        noise_multiplier=0.0,
        noise=torch.zeros_like(weights),
        expected=BATCH,
    )
    return gradient


def norms_then_backward(weights: Tensor, x: Tensor, numbers: int) -> Tensor:
    subject._BLOCK_NUMBERS = numbers
    gradients_of = vmap(vmap(grad(loss_of_one), in_dims=(None, 0)))
    kept = torch.empty(x.shape[:2])
    for rows, columns in subject._blocks(len(x), x.shape[1], weights.shape[1]):
        norms = torch.linalg.vector_norm(gradients_of(weights[rows], x[rows, columns]), dim=-1)
        kept[rows, columns] = (CLIP / norms).clamp(max=1)
    leaf = weights.detach().requires_grad_()
    return torch.autograd.grad((vmap(losses_of)(leaf, x) * kept).sum() / BATCH, leaf)[0]


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    weights = 0.05 * torch.randn(CLIENTS, NETWORK.layout.trainable)
    x = torch.rand(CLIENTS, BATCH, PIXELS)
    variants: dict[str, Callable[[], Tensor]] = {"plain": partial(plain, weights, x)}
    for power in (18, 20, 22, 25):
        size = f"{4 * 2**power / 2**20:g} MB"
        variants[f"clip, then sum, {size}"] = partial(clip_then_sum, weights, x, 2**power)
        variants[f"norms, then backward, {size}"] = partial(
            norms_then_backward, weights, x, 2**power
        )
    expected = clip_then_sum(weights, x, 2**22)
    torch.testing.assert_close(norms_then_backward(weights, x, 2**22), expected)
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(REPEATS):
        for name, variant in variants.items():
            started = time.process_time()
            variant()
            times[name].append(time.process_time() - started)
    base = min(times["plain"])
    for name, taken in times.items():
        print(f"{name:32s} {1000 * min(taken):8.1f} ms {min(taken) / base:6.1f} x")


if __name__ == "__main__":
    main()
