"""The Kumaraswamy distribution: like a Beta, but with an invertible distribution function.

Its density is ``zeta kappa x^(zeta-1) (1 - x^zeta)^(kappa-1)`` on (0, 1). All functions
use logarithms, because the samples are multiplied into long products.
"""

import torch
from torch import Tensor

EULER = 0.57721566490153286


def log_sample(zeta: Tensor, kappa: Tensor, uniform: Tensor) -> Tensor:
    """Return the logarithm of the sample ``(1 - u^(1/kappa))^(1/zeta)`` for each uniform ``u``."""
    return torch.log(-torch.expm1(torch.log(uniform) / kappa)) / zeta


def log_mean(zeta: Tensor, kappa: Tensor) -> Tensor:
    """Return the logarithm of the mean, ``kappa B(1 + 1/zeta, kappa)``."""
    first = 1 + 1 / zeta
    log_beta = torch.lgamma(first) + torch.lgamma(kappa) - torch.lgamma(first + kappa)
    return torch.log(kappa) + log_beta


def kl_to_power(zeta: Tensor, kappa: Tensor, alpha: float) -> Tensor:
    """Return the divergence from ``Beta(alpha, 1)``, whose density is a power of x.

    The divergence from a general Beta(alpha, beta) contains an infinite series with the factor
    beta - 1; with beta = 1 the series vanishes and the formula is exact.
    """
    mean_log = -EULER - torch.digamma(kappa) - 1 / kappa
    log_densities = torch.log(zeta * kappa) - torch.log(zeta.new_tensor(alpha))
    return (zeta - alpha) / zeta * mean_log + log_densities - (kappa - 1) / kappa
