"""Variances of paired differences, estimated with the help of all other pairs of methods.

Three seeds give a variance two degrees of freedom, so a test that uses nothing else needs very
large differences. Under the hierarchical model of limma (Smyth, 2004) the variances of all pairs
come from one scaled inverse chi-squared distribution with location s0² and d0 degrees of freedom.
An infinite d0 means equal variances (the residual variance of a two-way analysis of variance, with
``(seeds - 1) * (methods - 1)`` degrees of freedom), d0 = 0 means unrelated ones (the paired
t-test). limma estimates d0 and s0²; with a dozen methods and three seeds that estimate is too
uncertain to be used as if it were known, so here p-values are averaged over the posterior of both.

All functions work on many tables at once: the first axis of an array is the table.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, ndtr, polygamma, stdtr

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

_PRIOR_DOF = {1.0: 1.0, 2.0: 1.0, 4.0: 1.0, 8.0: 1.0, 16.0: 1.0, 1e6: 20.0}
"""The values of d0 that are averaged over, and how probable they are before the data.

Methods that train the same network on the same data mostly have similar noise, so equal variances
are the most probable; the paired t-test of each pair guards against the others.
"""

_STEPS = np.linspace(-3.5, 6.0, 8)
"""The grid of log s0², in standard errors around its estimate."""

_FEW_SEEDS = 64.0
"""How much the variance of the method in all pairs is raised if there are few seeds."""

_NORMAL = 1e5
"""With more degrees of freedom, Student's distribution is a normal one."""

_NEGLIGIBLE = 1e-6
"""Grid points with a smaller weight are left out."""


@dataclass(frozen=True)
class VarianceModel:
    """The posterior of the prior's location and degrees of freedom, as a weighted grid.

    ``weight`` and ``location`` have one row per grid point and one column per table; ``dof`` has
    one entry per grid point.
    """

    weight: Array
    location: Array
    dof: Array

    def raised_to(self, variance: Array, seeds: Array) -> "VarianceModel":
        """Return the model of pairs with a method whose own noise has this variance, if larger.

        A pair of ordinary methods has the location s0², half of it from each. Few seeds often
        underestimate a variance, and that of a method in all pairs makes all of them wrong, so its
        excess over s0² / 2 counts 5 times with three seeds, 1.25 times with five.
        """
        factor = 1 + _FEW_SEEDS / np.maximum(seeds - 1, 1) ** 4
        excess = factor * (variance - self.location / 2)
        raised = self.location + np.maximum(excess, 0.0)
        return VarianceModel(self.weight, raised, self.dof)

    def tail(
        self, distance: Array, variance: Array, seeds: Array, asked: Flags | None = None
    ) -> Array:
        """Return the probability that a mean exceeds its expectation by ``distance``.

        All have one row per table and one column per pair; 1 where it is not ``asked`` for.
        """
        own = np.maximum(seeds - 1, 0)
        if len(distance) == 1:  # all grid points at once
            dofs = self.dof[:, None] + own
            pooled = (self.dof[:, None] * self.location + own * variance) / dofs
            with np.errstate(divide="ignore", invalid="ignore"):
                t = np.nan_to_num(distance / np.sqrt(pooled / seeds), nan=0.0)
            single: Array = self.weight.T @ stdtr(dofs, -t)
            return single if asked is None else np.where(asked, single, 1.0)
        found = np.zeros(np.broadcast_shapes(distance.shape, variance.shape))
        needed = np.ones(found.shape, bool) if asked is None else asked
        for weight, location, dof in zip(self.weight, self.location, self.dof, strict=True):
            at = rows, _ = np.nonzero(needed & (weight > _NEGLIGIBLE)[:, None])
            pooled = (dof * location[rows] + own[at] * variance[at]) / (dof + own[at])
            with np.errstate(divide="ignore", invalid="ignore"):
                t = np.nan_to_num(distance[at] / np.sqrt(pooled / seeds[at]), nan=0.0)
            tails = stdtr(dof + own[at], -t) if dof < _NORMAL else ndtr(-t)
            found[at] += weight[rows] * tails
        return np.where(needed, found, 1.0)

    def variance(self, variance: Array, seeds: Array) -> Array:
        """Return the estimated variance of each pair: the posterior mean over the grid."""
        found = np.zeros(variance.shape)
        own = np.maximum(seeds - 1, 0)
        for weight, location, dof in zip(self.weight, self.location, self.dof, strict=True):
            found += weight[:, None] * (dof * location[:, None] + own * variance) / (dof + own)
        return found


def fit_variances(variances: Array, seeds: Array, methods: int) -> VarianceModel:
    """Fit the model to the variances of all pairs of methods and their numbers of seeds.

    Both have one row per table and one column per pair. The pairs of M methods hold as much
    information as M - 1 independent variances, so each counts 2 / M. Variances of zero (identical
    methods) are left out, and every table must have a positive one.
    """
    known = (variances > 0) & (seeds > 1)
    share = np.where(known, 2.0 / methods, 0.0)
    total = share.sum(1)
    # Most tables have all seeds of all methods: one row then serves for all.
    rows = seeds[:1] if (seeds == seeds[:1]).all() else seeds
    own = np.maximum(rows - 1.0, 1.0)
    logs = np.log(np.where(known, variances, 1.0))
    # The expectation and variance of a log chi-squared variable, and the same of the prior below.
    bias, noise = digamma(own / 2) - np.log(own / 2), polygamma(1, own / 2)
    center = (share * (logs - bias)).sum(1) / total
    typical = (share * noise).sum(1) / total
    ratio = np.where(known, np.exp(logs - center[:, None]), 0.0)
    scores, locations, dofs = [], [], []
    for dof, prior in _PRIOR_DOF.items():
        shift = digamma(dof / 2) - np.log(dof / 2)
        error = np.sqrt((typical + polygamma(1, dof / 2)) / total)
        constant = own / 2 * np.log(own / dof) + (
            gammaln((dof + own) / 2) - gammaln(own / 2) - gammaln(dof / 2)
        )
        for step in _STEPS:
            log_location = shift + step * error
            scaled = ratio * np.exp(-log_location)[:, None]
            likelihood = (
                constant
                + own / 2 * (logs - center[:, None] - log_location[:, None])
                - (dof + own) / 2 * np.log1p(own / dof * scaled)
            )
            scores.append((share * likelihood).sum(1) + np.log(prior * error))
            locations.append(np.exp(center + log_location))
            dofs.append(dof)
    weight = np.exp(np.array(scores) - np.max(scores, axis=0))
    return VarianceModel(weight / weight.sum(0), np.array(locations), np.array(dofs))
