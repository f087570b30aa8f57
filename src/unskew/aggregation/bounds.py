"""Bounds on weights that still hold after the weights are scaled to sum to one."""

from bisect import bisect_left

import torch
from torch import Tensor

from unskew.aggregation import checks
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Reasons
from unskew.errors import UnskewError

SLACK = 1e-9
"""How far bounds such as 1/49 may miss a sum of one by rounding."""

NOTHING = 1e-300
"""Weights below this count as none: a bound divided by them would be infinite."""


def clipped(weighting: ClientWeighting, low: float = 0.0, high: float = 1.0) -> ClientWeighting:
    """Keep every weight between ``low`` and ``high``.

    Clients between the bounds keep their proportions; what the others lose or gain is spread
    over them (water-filling), so the bounds hold for the weights that are used.
    """
    checks.between("low", low, 0.0, 1.0)
    checks.between("high", high, low, 1.0)

    def derive(uploads: Uploads) -> tuple[Tensor, Reasons]:
        clients = len(uploads)
        if low * clients > 1 + SLACK or high * clients < 1 - SLACK:
            raise UnskewError(
                f"low and high must leave room for {clients} weights that sum to one: "
                f"low at most and high at least {1 / clients:.4g} (got {low:g} and {high:g})"
            )
        reasons = weighting.explain(uploads)
        unclipped = reasons.pop("weights")
        return bounded(unclipped, low, high), {**reasons, "unclipped": unclipped}

    return ClientWeighting(f"clipped {weighting.name}", derive)


def bounded(weights: Tensor, low: float, high: float) -> Tensor:
    """Scale weights by the one factor for which they sum to one when clamped to the bounds."""
    held = weights > NOTHING
    many, others = int(held.sum()), int((~held).sum())
    if high * many + low * others < 1:
        # Even at the upper bound these do not sum to one: clients of no weight take the rest.
        return torch.full_like(weights, (1 - high * many) / max(1, others)).masked_fill_(held, high)

    def total(factor: float) -> float:
        return float((weights * factor).clamp(low, high).sum())

    turns: list[float] = torch.cat([low / weights[held], high / weights[held]]).sort()[0].tolist()
    place = min(bisect_left(turns, 1.0, key=total), len(turns) - 1)
    pinned = (weights * turns[place]).clamp(low, high)
    middle = weights * (turns[max(0, place - 1)] + turns[place]) / 2
    free = (middle > low) & (middle < high)
    if not bool(free.any()):
        return pinned
    pinned = middle.clamp(low, high)
    factor = float((1 - pinned[~free].sum()) / weights[free].sum())
    return torch.where(free, weights * factor, pinned)
