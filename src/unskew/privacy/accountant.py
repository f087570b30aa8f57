"""How much noise a budget costs, and how much of a budget training has spent.

The accounting is Opacus's, by Rényi differential privacy (Mironov, Talwar and Zhang, "Rényi
Differential Privacy of the Sampled Gaussian Mechanism", 2019): an upper bound that composes over
steps by addition.

Two things to know of its epsilon. It holds for Poisson sampling, where each record joins each
batch by its own toss of a coin, while our batches are slices of a shuffled pass: the usual gap,
which the numbers do not show. ``spent(noise_multiplier, 1.0, passes, delta)`` does without that
assumption: a record is in one batch of a pass, so a pass is one step without sampling. And it
is a promise to each record of one client, whose rate is the batch size over the client's own
number of samples: small clients spend more, and one with fewer samples than a batch has rate 1.
"""

import warnings
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.errors import UnskewError
from unskew.privacy.budget import Privacy

_FRACTIONS = (1.25, 1.5, 1.75, 2.25, 2.5, 2.75, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5)
_INTEGERS = (*range(2, 32), *range(32, 64, 4), 64, 80, 96, 112, 128, 160, 192, 256, 384, 512, 1024)
_ORDERS = _FRACTIONS + _INTEGERS
"""The orders the bound is the best of. Opacus's own end at 63, which is loose below epsilon 0.2;
in return theirs have 90 fractions, which take long and lower epsilon by a tenth at most."""

_HALF = (0.48, 0.52)
"""Around one half the series of a fractional order hardly converges; such rates count as the upper
end for those orders, which can only raise the bound."""

_MOST_NOISE = 1e6
_PRECISION = 1e-3
"""How close, as a ratio, the noise comes to the least that keeps the budget."""


def sampling_rate(samples: int, batch_size: int) -> float:
    """Return the share of a client's records in a batch: at most 1."""
    if samples < 1:
        raise UnskewError(f"samples: a rate takes at least one sample (got {samples})")
    return min(1.0, batch_size / samples)


def spent(noise_multiplier: float, rate: float, steps: int, delta: float) -> float:
    """Return the epsilon that so many noisy steps have spent, at this delta."""
    _check(rate, steps)
    if not (noise_multiplier >= 0 and 0 < delta < 1):
        raise UnskewError(
            f"noise_multiplier must not be negative and delta must be between 0 and 1 "
            f"(got {noise_multiplier} and {delta})"
        )
    if steps == 0:
        return 0.0
    with warnings.catch_warnings():
        # Opacus warns where the best order is the first or last; the bound holds all the same.
        warnings.filterwarnings("ignore", message="Optimal order is the")
        epsilon, _ = _opacus().get_privacy_spent(
            orders=_ORDERS, rdp=_one_step(noise_multiplier, rate) * steps, delta=delta
        )
    return max(0.0, float(epsilon))


def noise_multiplier(privacy: Privacy, rate: float, steps: int) -> float:
    """Return the least noise, in units of the clipping norm, that keeps the budget.

    What it returns keeps it for certain (as the accountant sees it); 0.1 % less might not.
    """
    _check(rate, steps, least=1)
    low, high = 0.0, 1.0
    while spent(high, rate, steps, privacy.delta) > privacy.epsilon:
        low, high = high, 2 * high
        if high > _MOST_NOISE:
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
    """Return the least noise that keeps the budget of every client, given (rate, steps) of each.

    Mostly the client with the largest rate decides, but not always: with batches of 32, a client
    with 33 samples takes two steps a pass at nearly the rate of one that takes a single step.
    """
    leaders = _undominated(schedules)
    if not leaders:
        raise UnskewError("privacy: no client takes a step, so there is nothing to protect")
    # Without much sampling the cost goes with rate² x steps: most likely the first decides.
    leaders.sort(key=lambda schedule: schedule[0] ** 2 * schedule[1], reverse=True)
    noise = noise_multiplier(privacy, *leaders[0])
    for rate, steps in leaders[1:]:
        if spent(noise, rate, steps, privacy.delta) > privacy.epsilon:
            noise = noise_multiplier(privacy, rate, steps)
    return noise


def _undominated(schedules: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    """Keep the schedules that no other exceeds in both rate and steps: the others spend less."""
    kept: list[tuple[float, int]] = []
    for rate, steps in sorted(set(schedules), reverse=True):
        _check(rate, steps)
        if steps > (kept[-1][1] if kept else 0):
            kept.append((rate, steps))
    return kept


@lru_cache(maxsize=4096)
def _one_step(noise_multiplier: float, rate: float) -> NDArray[np.float64]:
    """Return the Rényi divergence bound of one step at every order."""
    low, high = _HALF
    rates = (high if low < rate < high else rate, rate)
    return np.concatenate(
        [
            _opacus().compute_rdp(q=q, noise_multiplier=noise_multiplier, steps=1, orders=orders)
            for q, orders in zip(rates, (_FRACTIONS, _INTEGERS), strict=True)
        ]
    )


def _check(rate: float, steps: int, least: int = 0) -> None:
    if not 0 < rate <= 1:
        raise UnskewError(f"rate must be above 0 and at most 1 (got {rate})")
    if steps < least:
        raise UnskewError(f"steps must be at least {least} (got {steps})")


def _opacus() -> Any:
    """Return Opacus's analysis of Rényi privacy; it is slow to import, and an extra."""
    try:
        from opacus.accountants.analysis import rdp  # noqa: PLC0415
    except ImportError:
        raise UnskewError(
            'privacy: the accountant is that of Opacus; pip install "unskew[dp]"'
        ) from None
    return rdp
