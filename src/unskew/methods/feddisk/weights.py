"""Sample weights from density ratios, and their diagnostics."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SampleWeights:
    """One client's sample weights and their diagnostics."""

    values: Tensor
    effective: float
    """The effective sample size ``(sum w)^2 / sum w^2`` as a fraction of the samples."""
    coverage: float
    """The fraction of the global distribution that the client's samples cover.

    If q is positive wherever p is, the ratio p/q has mean one under q; otherwise the mean is the
    mass of p where q is positive. Weights cannot replace missing samples.
    """


def weights_from(log_ratio: Tensor, clip: float, *, mean_one: bool = True) -> SampleWeights:
    """Turn log ratios ``log p(x_i)/q(x_i)`` into weights: scaled to mean one, clipped, rescaled.

    Without ``mean_one`` the weights are the clipped ratios themselves.
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
