"""Fit FedFusion's autoencoder: reconstruction error plus the divergences from the priors."""

import torch
from torch import Generator, Tensor

from unskew.aggregation import kumaraswamy
from unskew.aggregation.blocks import single_threaded
from unskew.aggregation.fusion_allocation import CORRECTED, TINY, Reading, sample_allocation
from unskew.aggregation.fusion_vae import PRIOR_STICK, FusionVAE, Posterior

LEARNING_RATE = 1e-3
WEIGHT_DECAY = 1e-4
MOMENTS = (0.9, 0.999)


def fit(
    vae: FusionVAE,
    parameters: Tensor,
    statistics: Tensor,
    noise: Generator,
    *,
    steps: int = 30,
    temperature: float = 1.0,
    kl: float = 1e-3,
    reading: Reading = CORRECTED,
) -> tuple[Tensor, list[float]]:
    """Run Adam from the given parameters; return the new ones and the loss before each step."""
    adam, losses = FlatAdam(parameters), []
    with single_threaded():
        for _ in range(steps):
            free = parameters.detach().requires_grad_()
            value = loss(
                vae, free, statistics, noise, temperature=temperature, kl=kl, reading=reading
            )
            (gradient,) = torch.autograd.grad(value, free)
            parameters = adam.step(parameters, gradient)
            losses.append(value.item())
    return parameters, losses


class FlatAdam:
    """Adam with weight decay for one vector, by the formulas of Kingma and Ba (2015).

    Importing ``torch.optim`` takes longer than a whole fit.
    """

    def __init__(self, parameters: Tensor) -> None:
        self._first, self._second = torch.zeros_like(parameters), torch.zeros_like(parameters)
        self._steps = 0

    def step(self, parameters: Tensor, gradient: Tensor) -> Tensor:
        """Return the parameters after one step."""
        self._steps += 1
        gradient = gradient + WEIGHT_DECAY * parameters
        self._first.lerp_(gradient, 1 - MOMENTS[0])
        self._second.lerp_(gradient.square(), 1 - MOMENTS[1])
        root = (self._second / (1 - MOMENTS[1] ** self._steps)).sqrt_().add_(1e-8)
        lr = LEARNING_RATE / (1 - MOMENTS[0] ** self._steps)
        return torch.addcdiv(parameters, self._first, root, value=-lr)


def loss(
    vae: FusionVAE,
    parameters: Tensor,
    statistics: Tensor,
    noise: Generator,
    *,
    temperature: float,
    kl: float,
    reading: Reading = CORRECTED,
) -> Tensor:
    """Return the mean squared error of the reconstruction plus ``kl`` times the divergences."""
    posterior = vae.encode(parameters, statistics)
    allocation = sample_allocation(posterior, noise, temperature, reading)
    spread = posterior.log_code_sd.exp() * torch.randn(posterior.code.shape, generator=noise)
    mixed = torch.einsum("km,kml->kl", allocation.b, posterior.code + spread)
    error = (vae.decode(parameters, mixed) - statistics).square().mean()
    return error + kl * divergence(posterior, allocation.rho, reading)


def divergence(posterior: Posterior, rho: Tensor, reading: Reading = CORRECTED) -> Tensor:
    """Return the divergences of the posteriors from their priors, averaged over clients.

    The priors are Beta(10, 1) for sticks, the mean product of such sticks for the allocation, and
    standard normals for scores and codes.
    """
    components = rho.shape[1]
    sticks = torch.arange(1, components + 1)  # the number of sticks in each component's product
    if reading.rho == "literal":
        sticks = torch.full_like(sticks, components)
    prior = (PRIOR_STICK / (PRIOR_STICK + 1)) ** sticks
    total = (
        kumaraswamy.kl_to_power(posterior.zeta, posterior.kappa, PRIOR_STICK).sum()
        + bernoulli_kl(rho.clamp(TINY, 1 - TINY), prior.to(rho.dtype)).sum()
        + normal_kl(posterior.score, posterior.log_score_sd).sum()
        + normal_kl(posterior.code, posterior.log_code_sd).sum()
    )
    return total / len(rho)


def normal_kl(center: Tensor, log_sd: Tensor) -> Tensor:
    """Return the divergence of normals from the standard normal."""
    return (center.square() + (2 * log_sd).exp() - 1) / 2 - log_sd


def bernoulli_kl(p: Tensor, q: Tensor) -> Tensor:
    """Return the divergence of one Bernoulli distribution from another."""
    return p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
