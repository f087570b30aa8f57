"""The gradient of DP-SGD: clip each sample's gradient, sum them, and add noise.

Abadi et al., "Deep Learning with Differential Privacy", 2016. Since the objective is a pure
function of flat weights, ``torch.func`` computes per-sample gradients, for one client and for a
cohort with the same code.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from unskew.errors import UnskewError
from unskew.models.functional import FunctionalModel
from unskew.utils.rng import torch_generator

_BLOCK_NUMBERS = 2**22
"""How many numbers of per-sample gradients are computed at once: 16 MB, the fastest size measured
(see docs/privacy.md)."""


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
    per_client: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor]:
    """Return the private gradient, and the samples' losses (which are not private).

    ``loss_of_one(weights, *sample, *per_client)`` is the loss of one sample, without a batch
    dimension. For one client ``weights`` has shape D, each of ``samples`` B x …, and ``factors``
    B. For a cohort, all of them, ``noise`` and ``per_client`` (further inputs of a client, such as
    references) have a leading dimension of clients.

    ``factors`` are the sample weights: 1 without any, and 0 for padding, which then adds exactly
    0. They multiply a gradient *before* it is clipped, so that no sample changes the sum by more
    than ``clip``, whatever its weight. A gradient that is not finite counts as 0.

    ``expected`` is the batch size to divide by, one number or one per client: the smaller of the
    batch size and the client's number of samples. It must not be the size of this very batch,
    which may reveal whether a record is in it.
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
            per_client=[tensor[None] for tensor in per_client],
        )
        return gradient[0], losses[0]
    in_dims = (None, *[0] * len(samples), *[None] * len(per_client))
    gradients_of = vmap(vmap(grad_and_value(loss_of_one), in_dims=in_dims))
    weights = weights.detach()
    sums, losses = torch.zeros_like(weights), weights.new_empty(factors.shape)
    for rows, columns in _blocks(len(weights), factors.shape[1], weights.shape[1]):
        gradients, losses[rows, columns] = gradients_of(
            weights[rows],
            *(tensor[rows, columns] for tensor in samples),
            *(tensor[rows] for tensor in per_client),
        )
        sums[rows] += _clipped_sums(gradients, factors[rows, columns], clip)
    divisor = torch.as_tensor(expected, dtype=sums.dtype, device=sums.device).reshape(-1, 1)
    return (sums + noise_multiplier * clip * noise) / divisor, losses


def private_noise(
    seed: int, stage_name: str, round_: int, client: int, step: int, size: int
) -> Tensor:
    """Draw the standard normal noise of one step: the same in every runner, new in every step.

    The stage's name is part of the stream, since every stage counts its rounds from 0 and noise
    that is used twice can be subtracted.
    """
    noise = torch_generator(seed, f"privacy of {stage_name}", round_, client, step)
    return torch.randn(size, generator=noise)


def reject_coupled(network: FunctionalModel) -> None:
    """Raise if a record affects the gradients of other records in its batch."""
    if network.couples_samples:
        raise UnskewError(
            "privacy: BatchNorm mixes the samples of a batch, so there are no per-sample "
            "gradients; use a network without it, or with GroupNorm"
        )


def _blocks(clients: int, batch: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Split clients x samples so that the gradients of a block fit into memory."""
    width = max(1, min(batch, _BLOCK_NUMBERS // size))
    height = max(1, _BLOCK_NUMBERS // (width * size))
    for row in range(0, clients, height):
        for column in range(0, batch, width):
            yield slice(row, row + height), slice(column, column + width)


def _clipped_sums(gradients: Tensor, factors: Tensor, clip: float) -> Tensor:
    """Sum each client's gradients times their factors, each clipped to the norm ``clip``."""
    norms = torch.linalg.vector_norm(gradients, dim=-1)
    max_factors = clip / norms
    clipped = torch.clamp(factors, -max_factors, max_factors)
    finite = torch.isfinite(norms * factors)
    if not finite.all():
        clipped = clipped.where(finite, 0.0)
        gradients = gradients.where(finite.unsqueeze(-1), 0.0)
    return torch.bmm(clipped.unsqueeze(1), gradients).squeeze(1)
