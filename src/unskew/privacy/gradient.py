"""DP-SGD's gradient: each sample's is clipped, they are summed, and noise is added.

Abadi et al., "Deep Learning with Differential Privacy", 2016. Since the objective is a pure
function of flat weights, ``torch.func`` gives every sample's own gradient, for one client and for
a cohort by the same code.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from unskew.errors import UnskewError
from unskew.models.functional import FunctionalModel
from unskew.utils.rng import torch_generator

_PIECE_NUMBERS = 2**22
"""How many numbers of samples' gradients are made at once: 16 MB, which also was fastest (see
docs/privacy.md)."""


def private_gradient(
    loss_of_one: Callable[..., Tensor],
    weights: Tensor,
    samples: Sequence[Tensor],
    factors: Tensor,
    *,
    clip: float,
    noise_multiplier: float,
    noise: Tensor,
    expected: float | Tensor,
    own: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor]:
    """Return the private gradient, and the samples' losses (which nothing protects).

    ``loss_of_one(weights, *sample, *own)`` is the loss of one sample, without a batch dimension.
    For one client ``weights`` are D numbers, each of ``samples`` is B x …, ``factors`` B. For a
    cohort all of them, ``noise`` and ``own`` (what a client has besides samples, such as
    references) have a leading dimension of clients.

    ``factors`` are the samples' weights, 1 without any, and 0 for padding, which then adds
    exactly nothing. They multiply a gradient *before* it is clipped, so that no sample moves the
    sum by more than ``clip``, whatever its weight. A gradient that is not finite counts as 0.

    ``expected`` is the batch size to divide by, a number or one a client: the smaller of the
    batch size and the client's samples. It must not be the count of this very batch, which may
    tell whether a record is there.
    """
    if weights.ndim == 1:
        gradient, losses = private_gradient(
            loss_of_one,
            weights[None],
            [tensor[None] for tensor in samples],
            factors[None],
            clip=clip,
            noise_multiplier=noise_multiplier,
            noise=noise[None],
            expected=expected,
            own=[tensor[None] for tensor in own],
        )
        return gradient[0], losses[0]
    in_dims = (None, *[0] * len(samples), *[None] * len(own))
    gradients_of = vmap(vmap(grad_and_value(loss_of_one), in_dims=in_dims))
    weights = weights.detach()
    sums, losses = torch.zeros_like(weights), weights.new_empty(factors.shape)
    for rows, columns in _pieces(len(weights), factors.shape[1], weights.shape[1]):
        gradients, losses[rows, columns] = gradients_of(
            weights[rows],
            *(tensor[rows, columns] for tensor in samples),
            *(tensor[rows] for tensor in own),
        )
        sums[rows] += _clipped_sums(gradients, factors[rows, columns], clip)
    divisor = torch.as_tensor(expected, dtype=sums.dtype, device=sums.device).reshape(-1, 1)
    return (sums + noise_multiplier * clip * noise) / divisor, losses


def private_noise(seed: int, stage: str, round_: int, client: int, step: int, size: int) -> Tensor:
    """Draw one step's standard normal noise: the same in any runner, other in every step.

    The stage's name is part of the stream because rounds start anew with each stage, and noise
    used twice can be subtracted.
    """
    noise = torch_generator(seed, f"privacy of {stage}", round_, client, step)
    return torch.randn(size, generator=noise)


def refuse_coupled(network: FunctionalModel) -> None:
    """Refuse a network in which one record reaches the gradients of others."""
    if network.couples_samples:
        raise UnskewError(
            "privacy: BatchNorm mixes the samples of a batch, so no sample has a gradient of its "
            "own; use a network without it, or with GroupNorm"
        )


def _pieces(clients: int, batch: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Cut clients x samples so that the gradients of a piece fit into their share of memory."""
    width = max(1, min(batch, _PIECE_NUMBERS // size))
    height = max(1, _PIECE_NUMBERS // (width * size))
    for row in range(0, clients, height):
        for column in range(0, batch, width):
            yield slice(row, row + height), slice(column, column + width)


def _clipped_sums(gradients: Tensor, factors: Tensor, clip: float) -> Tensor:
    """Sum each client's gradients times their factors, none longer than ``clip``."""
    norms = torch.linalg.vector_norm(gradients, dim=-1)
    most = clip / norms
    kept = torch.clamp(factors, -most, most)
    usable = torch.isfinite(norms * factors)
    if not usable.all():
        kept = kept.where(usable, 0.0)
        gradients = gradients.where(usable.unsqueeze(-1), 0.0)
    return torch.bmm(kept.unsqueeze(1), gradients).squeeze(1)
