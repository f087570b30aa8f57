"""The allocation of clients to virtual components and its proportions: FedFusion's c and b."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from unskew.aggregation import kumaraswamy
from unskew.aggregation.fusion_vae import Posterior
from unskew.aggregation.weighting import on_simplex

Pi = Literal["softmax", "mass"]
Normalise = Literal["component", "literal"]

TINY = 1e-6
_LOWEST_SCORE = -30.0


@dataclass(frozen=True, eq=False)
class Allocation:
    """Tensors of clients x components: ``rho`` is the probability of being in a component, ``c``
    whether the client is in it, ``b`` its proportions over the components it is in."""

    rho: Tensor
    c: Tensor
    b: Tensor

    @property
    def shares(self) -> Tensor:
        """The share of each client in each component; rows sum to one."""
        return (self.b * self.c).to(torch.float64)

    @property
    def components(self) -> Tensor:
        """The component with the largest share of each client."""
        return self.shares.argmax(1)

    def rows(self, order: Tensor) -> "Allocation":
        """Return the allocation with the clients in the given order."""
        return Allocation(rho=self.rho[order], c=self.c[order], b=self.b[order])


def sample_allocation(posterior: Posterior, noise: Generator, temperature: float) -> Allocation:
    """Sample sticks, allocation and proportions, with gradients through all of them.

    The allocation is a hard sample with the gradient of the relaxed one (straight-through).
    """
    shape = posterior.zeta.shape
    sticks = kumaraswamy.log_sample(posterior.zeta, posterior.kappa, _uniform(shape, noise))
    log_rho = sticks.cumsum(1).clamp(max=-TINY)
    odds = log_rho - torch.log(-torch.expm1(log_rho))
    soft = torch.sigmoid((odds + torch.logit(_uniform(shape, noise))) / temperature)
    hard = (soft > 0.5).to(soft.dtype)
    c = _in_some_component(hard + (soft - soft.detach()))
    scores = posterior.score + posterior.log_score_sd.exp() * torch.randn(shape, generator=noise)
    return Allocation(rho=log_rho.exp(), c=c, b=_masked_softmax(scores, c))


def expected_allocation(posterior: Posterior) -> Allocation:
    """Return the allocation without noise: mean sticks, the more likely c, mean scores.

    Sticks are independent, so the mean of their product is the product of their means.
    """
    rho = kumaraswamy.log_mean(posterior.zeta, posterior.kappa).cumsum(1).exp()
    c = _in_some_component((rho >= 0.5).to(rho.dtype))
    return Allocation(rho=rho, c=c, b=_masked_softmax(posterior.score, c))


def component_weights(allocation: Allocation, samples: Tensor, pi: Pi) -> Tensor:
    """Return the weight of each component; components without clients have weight 0.

    ``softmax`` is the paper's Eq. 7, a softmax of numbers between 0 and 1, so no component has
    more than e times the weight of another. ``mass`` is the share of clients in a component.
    """
    mass = samples @ allocation.shares
    if pi == "mass":
        return mass / mass.sum()
    raw = (allocation.rho * allocation.b).to(torch.float64).mean(0).exp()
    return on_simplex(torch.where(mass > 0, raw, 0))


def fusion_weights(
    allocation: Allocation,
    samples: Tensor | None = None,
    pi: Pi = "softmax",
    normalise: Normalise = "component",
) -> Tensor:
    """Return each client's weight: a component's weight is divided among its clients.

    With ``samples``, clients are weighted by their samples within a component. With ``literal``
    the weights are those of the paper's algorithm as printed, ``sum_m pi_m b_km c_km``: they do
    not sum to one, but to about the number of clients divided by the number of components.
    """
    samples = torch.ones(len(allocation.b), dtype=torch.float64) if samples is None else samples
    raw = raw_weights(allocation, samples, pi, normalise)
    return raw if normalise == "literal" else on_simplex(raw)


def raw_weights(allocation: Allocation, samples: Tensor, pi: Pi, normalise: Normalise) -> Tensor:
    """Return the weights before normalisation; ``literal`` weights are used without it."""
    shares = allocation.shares
    weights = component_weights(allocation, samples, pi)
    if normalise == "literal":
        return shares @ weights
    mass = samples @ shares
    scale = torch.where(mass > 0, weights / torch.where(mass > 0, mass, 1), 0)
    # The common factor is arbitrary; this one keeps the samples of a single component unchanged.
    return samples * (shares @ (scale / scale.max()))


def _uniform(shape: Sequence[int], noise: Generator) -> Tensor:
    """Sample uniform numbers strictly between 0 and 1, so that their logits are finite."""
    return torch.rand(tuple(shape), generator=noise).clamp(TINY, 1 - TINY)


def _in_some_component(c: Tensor) -> Tensor:
    """Assign clients that are in no component to their most likely one.

    That is the first, because a cumulative product of sticks decreases.
    """
    unassigned = (c.detach() == 0).all(1)
    first = torch.arange(c.shape[1]) == 0
    return c + torch.outer(unassigned, first).to(c.dtype)


def _masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    top = scores.detach().amax(1, keepdim=True)
    shares = mask * (scores - top).clamp(min=_LOWEST_SCORE).exp()
    return shares / shares.sum(1, keepdim=True)
