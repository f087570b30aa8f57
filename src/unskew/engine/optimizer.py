"""The local optimisers, on flat parameters: one client's vector, or one row per client."""

from typing import Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam

from unskew.engine.settings import Settings


class Optimizer(Protocol):
    """Updates weights in place by their gradient."""

    def step(self, weights: Tensor, gradient: Tensor) -> None:
        """Take one step; ``weights`` may have fewer rows than before, never more."""

    def effective_step(self, steps: int, proximal_strength: float) -> float | None:
        """Return how far ``steps`` steps move a coordinate whose gradient is always 1.

        ``proximal_strength`` is the mu of a term mu/2 ||w - start||^2 in the objective. None if
        the size of a step is not proportional to the gradient.
        """


class SGD:
    """Stochastic gradient descent with momentum and weight decay, as in torch.optim.SGD."""

    def __init__(
        self,
        lr: float,
        momentum: float,
        weight_decay: float,
        mask: Tensor | None = None,
        clip: float | None = None,
    ) -> None:
        self._lr, self._momentum = lr, momentum
        self._weight_decay, self._mask, self._clip = weight_decay, mask, clip
        self._velocity: Tensor | None = None

    def step(self, weights: Tensor, gradient: Tensor) -> None:
        """Take one step."""
        gradient = _clipped(gradient, self._clip, self._mask)
        gradient = _decayed_and_masked(weights, gradient, self._weight_decay, self._mask)
        if self._momentum:
            if self._velocity is None:
                self._velocity = torch.zeros_like(weights)
            velocity = self._velocity[: len(weights)]
            gradient = velocity.mul_(self._momentum).add_(gradient)
        weights.add_(gradient, alpha=-self._lr)

    def effective_step(self, steps: int, proximal_strength: float) -> float:
        """Return the distance, found by simulating the steps."""
        distance = velocity = 0.0
        for _ in range(steps):
            velocity = self._momentum * velocity + 1 - proximal_strength * distance
            distance += self._lr * velocity
        return distance


class Adam:
    """torch.optim.Adam with its defaults; each client starts every round with zero moments."""

    _BETAS, _EPS = (0.9, 0.999), 1e-8

    def __init__(
        self,
        lr: float,
        weight_decay: float,
        mask: Tensor | None = None,
        clip: float | None = None,
    ) -> None:
        self._lr, self._weight_decay, self._mask, self._clip = lr, weight_decay, mask, clip
        self._moments: tuple[Tensor, Tensor] | None = None
        self._steps = 0

    def step(self, weights: Tensor, gradient: Tensor) -> None:
        """Take one step with torch's fused kernel, which goes over the memory once.

        Without it, Adam takes half as long as the gradients of a network of a million weights. The
        kernel needs contiguous weights, so rows that are slices of longer rows are passed one by
        one.
        """
        gradient = _clipped(gradient, self._clip, self._mask)
        gradient = _decayed_and_masked(weights, gradient, self._weight_decay, self._mask)
        if self._moments is None:
            layout = torch.contiguous_format
            self._moments = (
                torch.zeros_like(weights, memory_format=layout),
                torch.zeros_like(weights, memory_format=layout),
            )
        first, second = (moment[: len(weights)] for moment in self._moments)
        contiguous = weights.is_contiguous()

        def parts(rows: Tensor) -> list[Tensor]:
            return [rows] if contiguous else list(rows)

        adam(
            parts(weights),
            parts(gradient.contiguous()),
            parts(first),
            parts(second),
            [],
            [torch.full((), float(self._steps), device=weights.device) for _ in parts(weights)],
            fused=True,
            amsgrad=False,
            beta1=self._BETAS[0],
            beta2=self._BETAS[1],
            lr=self._lr,
            weight_decay=0.0,
            eps=self._EPS,
            maximize=False,
        )
        self._steps += 1

    def effective_step(self, steps: int, proximal_strength: float) -> None:
        """Return None: Adam's steps are as long for a small gradient as for a large one."""
        del steps, proximal_strength


def make_optimizer(settings: Settings, round_: int, mask: Tensor | None = None) -> Optimizer:
    """Return the optimiser of one round; where ``mask`` is 0 it does not change the weights."""
    lr = settings.lr_in(round_)
    if settings.optimizer == "adam":
        return Adam(lr, settings.weight_decay, mask, settings.clip)
    return SGD(lr, settings.momentum, settings.weight_decay, mask, settings.clip)


def _clipped(gradient: Tensor, clip: float | None, mask: Tensor | None) -> Tensor:
    """Shorten a gradient, or each row of several, to the norm ``clip`` if it is longer.

    As with torch, frozen coordinates do not count, and weight decay is added later. The norm is a
    sum in float64, in which the square of no finite float32 overflows.
    """
    if clip is None:
        return gradient
    if mask is not None:
        gradient = gradient * mask
    norms = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True, dtype=torch.float64)
    factors: Tensor = clip / norms
    return gradient * factors.clamp(max=1.0).to(gradient)


def _decayed_and_masked(
    weights: Tensor, gradient: Tensor, weight_decay: float, mask: Tensor | None
) -> Tensor:
    """Return the gradient with weight decay, zero in the coordinates that must not change."""
    if weight_decay:
        gradient = gradient.add(weights, alpha=weight_decay)
    return gradient if mask is None else gradient * mask
