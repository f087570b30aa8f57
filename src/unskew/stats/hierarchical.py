"""A method's gain over several federations, by a hierarchical model.

A federation f has an estimate y_f of the gain, with standard error e_f. The gain of a federation
comes from a normal distribution of gains::

    y_f ~ N(theta_f, e_f²)    theta_f ~ N(mu, tau²)

with a flat prior of the mean gain mu and a half-normal prior of the spread tau. Given tau,
everything is normal and known in closed form, so the posterior is a sum over a grid of tau: the
same numbers every time, without sampling.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from unskew.errors import UnskewError
from unskew.stats.judging import MARGIN, table_of
from unskew.stats.moderated import Array, VarianceModel
from unskew.stats.pairwise import (
    Differences,
    all_variances,
    differences_to,
    fit_model,
    noise_of_methods,
)

SCALE = 10.0
"""The scale of the half-normal prior of the spread between federations, in percentage points."""

_POINTS = 1001
"""The number of grid points of the spread."""

_RESOLUTION = 1e-4
"""Standard errors count as at least this share of the prior's scale."""

_TAIL = 0.025
"""The probability on each side of an interval of 95 %."""


@dataclass(frozen=True)
class Effect:
    """A method's mean difference to the baseline in one federation, and its standard error.

    The error is that of a normal distribution with the 95 % interval of the difference, so it is
    larger with few seeds: with five of them and unrelated variances, by a factor of 1.42.
    """

    mean: float
    error: float


@dataclass(frozen=True)
class Gain:
    """What is known about a method's gain over all federations, in the units of its effects.

    ``mean`` is the gain of an average federation with the interval ``low`` to ``high`` of 95 %.
    ``spread`` is the posterior median of the standard deviation between federations. ``p_helps`` is
    the probability of a positive gain on a new federation, ``p_exceeds_margin`` that of a gain
    above the margin.
    """

    federations: int
    mean: float
    low: float
    high: float
    spread: float
    p_helps: float
    p_exceeds_margin: float


def paired_effects(values: Mapping[str, Sequence[float]], baseline: str) -> dict[str, Effect]:
    """Return the effect of each method that has two or more seeds in common with the baseline.

    ``values`` are those of :func:`unskew.stats.judge`; the variances of differences are pooled over
    methods by the same model.

    >>> effects = paired_effects({"fedavg": [70, 69, 71], "new": [72, 72, 72]}, "fedavg")
    >>> effects["new"].mean, round(effects["new"].error, 2)
    (2.0, 1.27)
    """
    names = list(values)
    if baseline not in names:
        raise UnskewError(f"baseline: {baseline!r} is none of the methods ({', '.join(names)})")
    table = table_of(values)
    variance, count = all_variances(table)
    model = fit_model(variance, count)
    noise = noise_of_methods(table)
    found = differences_to(table, names.index(baseline), variance, count, model, noise)
    rivals = [name for name in names if name != baseline]
    return {
        name: Effect(float(mean), float(error))
        for name, mean, error, seeds in zip(
            rivals, found.mean[0], _errors(found)[0], found.seeds[0], strict=True
        )
        if seeds > 1
    }


def estimate_gain(
    effects: Sequence[Effect], *, margin: float = MARGIN, scale: float = SCALE
) -> Gain:
    """Combine a method's effects in two or more federations.

    ``margin`` is the smallest gain that matters and ``scale`` that of the prior of the spread, both
    in the units of the effects.

    >>> gain = estimate_gain([Effect(2.0, 1.0), Effect(4.0, 1.0), Effect(3.0, 1.0)])
    >>> round(gain.mean, 2), round(gain.p_helps, 2)
    (3.0, 0.9)
    """
    if len(effects) < 2:
        raise UnskewError(f"effects: needs two or more federations (got {len(effects)})")
    if not scale > 0:
        raise UnskewError(f"scale must be above 0 (got {scale:g})")
    means = np.array([effect.mean for effect in effects])
    errors = np.maximum([effect.error for effect in effects], _RESOLUTION * scale)
    # The middle is removed because probabilities of large numbers are computed from differences.
    middle = float(np.median(means))
    tau, weight, center, variance = _posterior(means - middle, errors, scale)

    def above(limit: float) -> float:
        return float(weight @ ndtr((center - (limit - middle)) / np.sqrt(variance + tau**2)))

    low, high = (
        middle + _quantile(p, weight, center, np.sqrt(variance)) for p in (_TAIL, 1 - _TAIL)
    )
    below = np.cumsum(weight) - weight / 2
    return Gain(
        federations=len(effects),
        mean=middle + float(weight @ center),
        low=low,
        high=high,
        spread=float(np.interp(0.5, below, tau)),
        p_helps=above(0.0),
        p_exceeds_margin=above(margin),
    )


def _posterior(y: Array, errors: Array, scale: float) -> tuple[Array, Array, Array, Array]:
    """Return the grid of tau, its weights, and the mean and variance of mu at each grid point."""
    top = max(8 * scale, 3 * float(np.ptp(y)))
    share = np.linspace(0.0, 1.0, _POINTS)
    tau = top * share**3  # dense near 0
    precision = 1 / (errors**2 + tau[:, None] ** 2)
    variance = 1 / precision.sum(1)
    center = variance * (precision @ y)
    log_weight = (
        0.5 * np.log(variance)
        + 0.5 * np.log(precision).sum(1)
        - 0.5 * (precision * (y - center[:, None]) ** 2).sum(1)
        - 0.5 * (tau / scale) ** 2
    )
    # The widths of the steps of tau, by the trapezoidal rule.
    width = np.gradient(tau)
    width[[0, -1]] /= 2
    weight = width * np.exp(log_weight - log_weight.max())
    return tau, weight / weight.sum(), center, variance


def _quantile(p: float, weight: Array, center: Array, deviation: Array) -> float:
    """Return a quantile of a mixture of normal distributions, by bisection."""
    ends = center + deviation * ndtri(p)
    used = weight > 0
    low, high = float(ends[used].min()), float(ends[used].max())
    for _ in range(50):
        middle = (low + high) / 2
        if weight @ ndtr((middle - center) / deviation) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _errors(differences: Differences) -> Array:
    """Return the standard errors of normal distributions with the same 95 % intervals."""
    mean, variance, seeds = differences.mean, differences.variance, np.maximum(differences.seeds, 2)
    if differences.model is None:
        half = np.sqrt(variance / seeds) * -stdtrit(seeds - 1, _TAIL)
    else:
        half = _half_widths(differences.model, variance, seeds)
    # A difference that is the same with every seed and has no other to borrow a variance from gets
    # the error with which it is as likely as all its signs. Identical methods have none.
    constant = ~(variance > 0) if differences.model is None else (variance == 0) & (mean == 0)
    signs: Array = np.abs(mean) / -ndtri(0.5**seeds)
    return np.where(constant, signs, half / -ndtri(_TAIL))


def _half_widths(model: VarianceModel, variance: Array, seeds: Array) -> Array:
    """Return half the widths of 95 % intervals, by bisection of their logarithms."""
    low, high = np.full(variance.shape, -40.0), np.full(variance.shape, 40.0)
    for _ in range(40):
        middle = (low + high) / 2
        too_narrow = model.tail(np.exp(middle), variance, seeds) > _TAIL
        low, high = np.where(too_narrow, middle, low), np.where(too_narrow, high, middle)
    found: Array = np.exp(high)
    return found
