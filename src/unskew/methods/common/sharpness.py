"""The step towards the worst weights nearby, in sharpness-aware minimisation (SAM)."""

import torch
from torch import Tensor

_SMALLEST = 1e-12
"""Keeps the direction of a zero gradient defined; the step is then zero."""


def ascent(direction: Tensor, rho: float) -> Tensor:
    """Return the vector of length ``rho`` in a direction."""
    step: Tensor = direction * (rho / (torch.linalg.vector_norm(direction) + _SMALLEST))
    return step
