"""From density ratios to sample weights, and what they are worth."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SampleWeights:
    """One client's weights."""

    values: Tensor
    effective: float
    """The effective sample size ``(sum w)^2 / sum w^2`` as a share of the samples."""
    coverage: float
    """How much of the global distribution the client's samples cover.

    The ratio p/q has mean one under q where q is positive wherever p is; where it is not, the mean
    is the share of p that q reaches. Weights cannot make up for what is missing.
    """


def weigh(log_ratio: Tensor, clip: float, *, mean_one: bool = True) -> SampleWeights:
    """Turn log ratios ``log p(x_i)/q(x_i)`` into weights: mean one, clipped, mean one again.

    Without ``mean_one`` they are the ratios themselves, clipped.
    """
    log_ratio = log_ratio.double()
    top = log_ratio.max()
    shifted = (log_ratio - top).exp()
    coverage = min(1.0, float(shifted.mean() * top.exp()))
    if mean_one:
        values = (shifted / shifted.mean()).clamp(1 / clip, clip)
        values = values / values.mean()
    else:
        values = log_ratio.exp().clamp(1 / clip, clip)
    effective = float(values.sum() ** 2 / (len(values) * values.square().sum()))
    return SampleWeights(values.to(torch.float32), effective, coverage)
