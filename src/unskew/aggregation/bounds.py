"""Bounds on weights that still hold after the weights are normalised to sum to one."""

from bisect import bisect_left

import torch
from torch import Tensor

from unskew.aggregation import checks
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics
from unskew.errors import UnskewError

SLACK = 1e-9
"""Rounding tolerance for bounds such as 1/49, whose sum over clients is not exactly one."""

SMALLEST_WEIGHT = 1e-300
"""Weights up to this are treated as zero: dividing a bound by them would overflow."""


def clipped(weighting: ClientWeighting, low: float = 0.0, high: float = 1.0) -> ClientWeighting:
    """Limit every weight to the range from ``low`` to ``high``.

    Clients within the bounds keep their proportions; the weight that clipping removes or adds is
    redistributed among them (water-filling), so the bounds hold for the normalised weights.
    """
    checks.between("low", low, 0.0, 1.0)
    checks.between("high", high, low, 1.0)

    def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        clients = len(uploads)
        if low * clients > 1 + SLACK or high * clients < 1 - SLACK:
            raise UnskewError(
                f"low and high must leave room for {clients} weights that sum to one: "
                f"low at most and high at least {1 / clients:.4g} (got {low:g} and {high:g})"
            )
        diagnostics = weighting.explain(uploads)
        unclipped = diagnostics.pop("weights")
        return bounded(unclipped, low, high), {**diagnostics, "unclipped": unclipped}

    return ClientWeighting(f"clipped {weighting.name}", derive)


def bounded(weights: Tensor, low: float, high: float) -> Tensor:
    """Scale weights by the factor for which they sum to one after clamping to the bounds."""
    positive = weights > SMALLEST_WEIGHT
    num_positive, num_zero = int(positive.sum()), int((~positive).sum())
    if high * num_positive + low * num_zero < 1:
        # Even at the upper bound these sum to less than one: clients of zero weight get the rest.
        rest = (1 - high * num_positive) / max(1, num_zero)
        return torch.full_like(weights, rest).masked_fill_(positive, high)

    def total(factor: float) -> float:
        return float((weights * factor).clamp(low, high).sum())

    ratios = torch.cat([low / weights[positive], high / weights[positive]])
    breakpoints: list[float] = ratios.sort()[0].tolist()
    index = min(bisect_left(breakpoints, 1.0, key=total), len(breakpoints) - 1)
    pinned = (weights * breakpoints[index]).clamp(low, high)
    middle = weights * (breakpoints[max(0, index - 1)] + breakpoints[index]) / 2
    free = (middle > low) & (middle < high)
    if not bool(free.any()):
        return pinned
    pinned = middle.clamp(low, high)
    factor = float((1 - pinned[~free].sum()) / weights[free].sum())
    return torch.where(free, weights * factor, pinned)
