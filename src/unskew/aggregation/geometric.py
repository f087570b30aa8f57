"""The geometric median, by a few smoothed Weiszfeld steps.

Pillutla, Kakade and Harchaoui (2022), "Robust aggregation for federated learning" (RFA).
"""

import math

import torch
from torch import Tensor

from unskew.aggregation import checks
from unskew.aggregation.distances import distances_to_mean
from unskew.aggregation.rule import Rule, weighted_mean
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Reasons, by_samples, on_simplex


def geometric_median(
    iterations: int = 4,
    nu: float = 1e-5,
    weighting: ClientWeighting | None = None,
    tolerance: float = 1e-6,
) -> Rule:
    """Approach the point whose distances to the clients have the least weighted sum.

    Each step weighs client k by p_k / max(nu, distance to the present point); p is the weigher's,
    by samples unless another is given, and the first point is the mean by p. Steps end early once
    the sum of distances changes by less than ``tolerance`` of itself.
    """
    checks.between("iterations", iterations, 0)
    checks.positive("nu", nu)
    checks.between("tolerance", tolerance, 0.0)
    prior = weighting or by_samples()

    def derive(uploads: Uploads) -> tuple[Tensor, Reasons]:
        base = prior(uploads)
        weights, objectives = base, [math.inf]
        for _ in range(iterations):
            by = weights.to(uploads.stack)
            distance = distances_to_mean(uploads.parameters, by, norm=2).cpu()
            objectives.append(float(base @ distance))
            if abs(objectives[-2] - objectives[-1]) < tolerance * objectives[-1]:
                break
            lengths = distance.clamp(min=nu)
            weights = on_simplex(base * (lengths.min() / lengths))
        return weights, {"objectives": torch.tensor(objectives[1:], dtype=torch.float64)}

    return weighted_mean(ClientWeighting("geometric_median", derive))
