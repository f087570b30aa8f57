"""The geometric median, computed by smoothed Weiszfeld steps.

Pillutla, Kakade and Harchaoui (2022), "Robust aggregation for federated learning" (RFA).
"""

import math

import torch
from torch import Tensor

from unskew.aggregation import checks
from unskew.aggregation.distances import distances_to_mean
from unskew.aggregation.rule import Rule, weighted_mean
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics, by_samples, on_simplex


def geometric_median(
    iterations: int = 4,
    nu: float = 1e-5,
    client_weighting: ClientWeighting | None = None,
    tolerance: float = 1e-6,
) -> Rule:
    """Approximate the point that minimises the weighted sum of distances to the clients.

    Each step weights client k by p_k / max(nu, distance to the current point). The prior weights p
    come from ``client_weighting``, by default by samples, and the first point is the mean with
    these weights. Iteration stops early once the objective changes by less than ``tolerance``,
    relative to its value.
    """
    checks.between("iterations", iterations, 0)
    checks.positive("nu", nu)
    checks.between("tolerance", tolerance, 0.0)
    prior = client_weighting or by_samples()

    def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        base = prior(uploads)
        weights, objectives = base, [math.inf]
        for _ in range(iterations):
            current = weights.to(uploads.stack)
            distance = distances_to_mean(uploads.parameters, current, norm=2).cpu()
            objectives.append(float(base @ distance))
            if abs(objectives[-2] - objectives[-1]) < tolerance * objectives[-1]:
                break
            smoothed = distance.clamp(min=nu)
            weights = on_simplex(base * (smoothed.min() / smoothed))
        return weights, {"objectives": torch.tensor(objectives[1:], dtype=torch.float64)}

    return weighted_mean(ClientWeighting("geometric_median", derive))
