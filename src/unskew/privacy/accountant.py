"""The noise that a privacy budget needs, and the part of a budget that training has spent.

The accountant is that of Opacus, with Rényi differential privacy (Mironov, Talwar and Zhang,
"Rényi Differential Privacy of the Sampled Gaussian Mechanism", 2019): an upper bound that composes
over steps by addition.

Two things to know about its epsilon. First, it holds for Poisson sampling, where each record joins
each batch independently, while the batches here are slices of a shuffled epoch: the usual gap,
which the numbers do not show. ``spent(noise_multiplier, 1.0, passes, delta)`` does not need that
assumption: a record is in one batch per pass over the data, so a pass is one step without
sampling. Second, it is a guarantee for each record of one client, whose sampling rate is the batch
size over that client's number of samples: small clients spend more, and a client with fewer
samples than a batch has rate 1.
"""

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.errors import UnskewError
from unskew.privacy.budget import Privacy

_FRACTIONS = (1.25, 1.5, 1.75, 2.25, 2.5, 2.75, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5)
_INTEGERS = (*range(2, 32), *range(32, 64, 4), 64, 80, 96, 112, 128, 160, 192, 256, 384, 512, 1024)
ORDERS = _FRACTIONS + _INTEGERS
"""The Rényi orders; the bound is the best over all of them. Opacus's default orders end at 63,
which is loose below epsilon 0.2; they have 90 fractions, which are slow and lower epsilon by a
tenth at most."""

_SLOW_RATES = (0.48, 0.52)
"""Between these sampling rates the series of a fractional order hardly converges; there, the upper
end is used for those orders, which can only raise the bound."""

MAX_NOISE = 1e6
"""The largest noise multiplier."""

_PRECISION = 1e-3
"""The relative precision of the smallest noise that keeps the budget."""


def sampling_rate(samples: int, batch_size: int) -> float:
    """Return the share of a client's records that are in a batch, at most 1."""
    if samples < 1:
        raise UnskewError(f"samples must be at least 1 (got {samples})")
    return min(1.0, batch_size / samples)


def spent(noise_multiplier: float, rate: float, steps: int, delta: float) -> float:
    """Return the epsilon that ``steps`` noisy steps at a sampling rate have spent, given delta."""
    _check(rate, steps)
    if not (noise_multiplier >= 0 and 0 < delta < 1):
        raise UnskewError(
            f"noise_multiplier must not be negative and delta must be between 0 and 1 "
            f"(got {noise_multiplier} and {delta})"
        )
    return Composition().plus_steps(noise_multiplier, rate, steps).epsilon(delta)


@dataclass(frozen=True)
class Composition:
    """What several releases about the same records cost together.

    Noisy steps add up at every Rényi order. Releases with Laplace noise are epsilon-private, which
    implies the Rényi divergence min(epsilon, order x epsilon² / 2) (Bun and Steinke, 2016); the
    smaller of that and the plain sum of their epsilons counts.
    """

    rdp: tuple[float, ...] = ()
    """The Rényi divergence of all noisy steps at each order; empty if there are none."""
    pure: float = 0.0
    """The sum of the epsilons of all other releases."""
    squares: float = 0.0
    """The sum of their squares."""

    def plus_steps(self, noise_multiplier: float, rate: float, steps: int) -> "Composition":
        """Add noisy steps at a sampling rate."""
        if steps == 0:
            return self
        added = _one_step(noise_multiplier, rate) * steps
        before = np.array(self.rdp) if self.rdp else np.zeros(len(ORDERS))
        return replace(self, rdp=tuple((before + added).tolist()))

    def plus_pure(self, epsilon: float) -> "Composition":
        """Add a release whose privacy does not need a delta."""
        return replace(self, pure=self.pure + epsilon, squares=self.squares + epsilon**2)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of all releases together; infinite if steps need a larger delta."""
        if not self.rdp:
            return self.pure
        if delta <= 0:
            return math.inf
        noisy = np.array(self.rdp)
        total = noisy + np.minimum(self.pure, np.array(ORDERS) * self.squares / 2)
        return min(self.pure + _epsilon(noisy, delta), _epsilon(total, delta))


def _epsilon(rdp: NDArray[np.float64], delta: float) -> float:
    with warnings.catch_warnings():
        # Opacus warns if the best order is the first or last; the bound holds nevertheless.
        warnings.filterwarnings("ignore", message="Optimal order is the")
        epsilon, _ = _opacus().get_privacy_spent(orders=ORDERS, rdp=rdp, delta=delta)
    return max(0.0, float(epsilon))


def noise_multiplier(privacy: Privacy, rate: float, steps: int) -> float:
    """Return the smallest noise, in units of the clipping norm, that keeps the budget.

    The result keeps the budget according to the accountant; 0.1 % less may not.
    """
    _check(rate, steps, min_steps=1)
    low, high = 0.0, 1.0
    while spent(high, rate, steps, privacy.delta) > privacy.epsilon:
        low, high = high, 2 * high
        if high > MAX_NOISE:
            raise UnskewError(
                f"privacy: epsilon {privacy.epsilon:g} at delta {privacy.delta:g} cannot be kept "
                f"over {steps} steps at rate {rate:g}; raise epsilon or delta, or take fewer steps"
            )
    while high - low > _PRECISION * high and high > _PRECISION:
        middle = (low + high) / 2
        if spent(middle, rate, steps, privacy.delta) > privacy.epsilon:
            low = middle
        else:
            high = middle
    return high


def shared_noise_multiplier(privacy: Privacy, schedules: Iterable[tuple[float, int]]) -> float:
    """Return the smallest noise that keeps every client's budget, given each (rate, steps).

    Usually the client with the largest rate decides, but not always: with batches of 32, a client
    with 33 samples takes two steps per epoch at nearly the rate of a client that takes one.
    """
    candidates = _undominated(schedules)
    if not candidates:
        raise UnskewError("privacy: no client takes a step, so there is nothing to protect")
    # For small rates the cost is proportional to rate² x steps, so the first usually decides.
    candidates.sort(key=lambda schedule: schedule[0] ** 2 * schedule[1], reverse=True)
    noise = noise_multiplier(privacy, *candidates[0])
    for rate, steps in candidates[1:]:
        if spent(noise, rate, steps, privacy.delta) > privacy.epsilon:
            noise = noise_multiplier(privacy, rate, steps)
    return noise


def _undominated(schedules: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return the schedules that no other exceeds in both rate and steps; the rest spend less."""
    kept: list[tuple[float, int]] = []
    for rate, steps in sorted(set(schedules), reverse=True):
        _check(rate, steps)
        if steps > (kept[-1][1] if kept else 0):
            kept.append((rate, steps))
    return kept


@lru_cache(maxsize=4096)
def _one_step(noise_multiplier: float, rate: float) -> NDArray[np.float64]:
    """Return the Rényi divergence bound of one step at every order."""
    low, high = _SLOW_RATES
    rates = (high if low < rate < high else rate, rate)
    return np.concatenate(
        [
            _opacus().compute_rdp(q=q, noise_multiplier=noise_multiplier, steps=1, orders=orders)
            for q, orders in zip(rates, (_FRACTIONS, _INTEGERS), strict=True)
        ]
    )


def _check(rate: float, steps: int, min_steps: int = 0) -> None:
    if not 0 < rate <= 1:
        raise UnskewError(f"rate must be above 0 and at most 1 (got {rate})")
    if steps < min_steps:
        raise UnskewError(f"steps must be at least {min_steps} (got {steps})")


def _opacus() -> Any:
    """Return Opacus's module for Rényi privacy, which is optional and slow to import."""
    try:
        from opacus.accountants.analysis import rdp  # noqa: PLC0415
    except ImportError:
        raise UnskewError(
            'privacy: the accountant needs Opacus; pip install "unskew[dp]"'
        ) from None
    return rdp
