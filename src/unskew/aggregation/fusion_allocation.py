"""The allocation of clients to virtual components and its proportions: FedFusion's c and b."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor

from unskew.aggregation import kumaraswamy
from unskew.aggregation.fusion_vae import Posterior
from unskew.aggregation.weighting import on_simplex

Pi = Literal["softmax", "mass"]
Normalise = Literal["component", "literal"]
Rho = Literal["partial", "literal"]
C = Literal["bernoulli", "literal"]
B = Literal["softmax", "literal"]

TINY = 1e-6
_LOWEST_SCORE = -30.0


class Reading(NamedTuple):
    """How the equations of an allocation are read; ``literal`` is as the paper prints them.

    ``rho`` is the product of sticks up to a component, or of all sticks (Eq. 3). ``c`` is one with
    probability rho, or the larger of two terms that differ by their noise only (Eq. 6). ``b`` is a
    softmax of normal scores over a client's components, or the scores.
    """

    rho: Rho = "partial"
    c: C = "bernoulli"
    b: B = "softmax"

    def products(self, log_sticks: Tensor) -> Tensor:
        """Return the logarithm of rho for the logarithms of sticks, clients x components."""
        if self.rho == "partial":
            return log_sticks.cumsum(1)
        return log_sticks.sum(1, keepdim=True).expand_as(log_sticks)

    def log_odds(self, log_rho: Tensor) -> Tensor:
        """Return the log odds of being in a component; Eq. 6 has the same term on both sides."""
        if self.c == "bernoulli":
            return log_rho - torch.log(-torch.expm1(log_rho))
        return torch.zeros_like(log_rho)

    def proportions(self, scores: Tensor, c: Tensor) -> Tensor:
        """Return the proportions of clients over the components they are in."""
        return _masked_softmax(scores, c) if self.b == "softmax" else c * scores


CORRECTED = Reading()


@dataclass(frozen=True, eq=False)
class Allocation:
    """Tensors of clients x components: ``rho`` is the probability of being in a component, ``c``
    whether the client is in it, ``b`` its proportions over the components it is in."""

    rho: Tensor
    c: Tensor
    b: Tensor

    @property
    def shares(self) -> Tensor:
        """The share of each client in each component; rows sum to one, unless b is literal."""
        return (self.b * self.c).to(torch.float64)

    @property
    def components(self) -> Tensor:
        """The component with the largest share of each client."""
        return self.shares.argmax(1)

    def rows(self, order: Tensor) -> "Allocation":
        """Return the allocation with the clients in the given order."""
        return Allocation(rho=self.rho[order], c=self.c[order], b=self.b[order])


def sample_allocation(
    posterior: Posterior, noise: Generator, temperature: float, reading: Reading = CORRECTED
) -> Allocation:
    """Sample sticks, allocation and proportions, with gradients through all of them.

    The allocation is a hard sample with the gradient of the relaxed one (straight-through).
    """
    shape = posterior.zeta.shape
    sticks = kumaraswamy.log_sample(posterior.zeta, posterior.kappa, _uniform(shape, noise))
    log_rho = reading.products(sticks).clamp(max=-TINY)
    odds = reading.log_odds(log_rho)
    soft = torch.sigmoid((odds + torch.logit(_uniform(shape, noise))) / temperature)
    hard = (soft > 0.5).to(soft.dtype)
    c = _in_some_component(hard + (soft - soft.detach()))
    scores = posterior.score + posterior.log_score_sd.exp() * torch.randn(shape, generator=noise)
    return Allocation(rho=log_rho.exp(), c=c, b=reading.proportions(scores, c))


def expected_allocation(posterior: Posterior, reading: Reading = CORRECTED) -> Allocation:
    """Return the allocation without noise: mean sticks, the more likely c by rho, mean scores.

    Sticks are independent, so the mean of their product is the product of their means.
    """
    rho = reading.products(kumaraswamy.log_mean(posterior.zeta, posterior.kappa)).exp()
    c = _in_some_component((rho >= 0.5).to(rho.dtype))
    return Allocation(rho=rho, c=c, b=reading.proportions(posterior.score, c))


def component_weights(allocation: Allocation, samples: Tensor, pi: Pi) -> Tensor:
    """Return the weight of each component; components without clients have weight 0.

    ``softmax`` is the paper's Eq. 7, a softmax of numbers between 0 and 1, so no component has
    more than e times the weight of another. ``mass`` is the share of clients in a component.
    """
    shares = allocation.shares
    if pi == "mass":
        mass = samples @ shares
        return mass / mass.sum()
    raw = (allocation.rho * allocation.b).to(torch.float64).mean(0).exp()
    occupied = samples @ (shares != 0).to(torch.float64) > 0
    return on_simplex(torch.where(occupied, raw, 0))


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

    That is the first, because a cumulative product of sticks does not increase.
    """
    unassigned = (c.detach() == 0).all(1)
    first = torch.arange(c.shape[1]) == 0
    return c + torch.outer(unassigned, first).to(c.dtype)


def _masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    top = scores.detach().amax(1, keepdim=True)
    shares = mask * (scores - top).clamp(min=_LOWEST_SCORE).exp()
    return shares / shares.sum(1, keepdim=True)
