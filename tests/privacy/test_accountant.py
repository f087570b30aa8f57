"""The accountant, compared with closed forms and with Opacus, and its guarantees."""

import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import log_ndtr

from unskew.errors import UnskewError
from unskew.privacy import (
    Privacy,
    noise_multiplier,
    sampling_rate,
    shared_noise_multiplier,
    spent,
)
from unskew.privacy.accountant import _undominated

DELTA = 1e-5


@pytest.fixture
def opacus():
    return pytest.importorskip("opacus.accountants")


def exact_epsilon(sigma: float, steps: int) -> float:
    """The smallest epsilon of steps without sampling: one Gaussian of mu = sqrt(T)/sigma."""
    mu = math.sqrt(steps) / sigma

    def excess(epsilon):
        gain = log_ndtr(mu / 2 - epsilon / mu)
        loss = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
        return math.exp(gain) - math.exp(loss) - DELTA

    return brentq(excess, 0, 10 * mu + mu * mu)


@pytest.mark.parametrize(("sigma", "steps"), [(1, 1), (2, 1), (5, 1), (1, 4), (10, 100), (40, 9)])
def test_without_sampling_epsilon_is_between_closed_forms(opacus, sigma, steps):
    # Rényi divergence of order a is a T / 2 sigma², and epsilon at most that + log(1/delta)/(a-1):
    # the best real a gives mu²/2 + mu sqrt(2 log(1/delta)).
    mu = math.sqrt(steps) / sigma
    simple = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / DELTA))
    assert exact_epsilon(sigma, steps) < spent(sigma, 1.0, steps, DELTA) < simple


def test_epsilon_is_close_to_that_of_opacus(opacus):
    # Opacus uses more orders of most sizes; the last case is the worst found by a search.
    cases = ((1.0, 0.01, 1000), (0.8, 0.1, 50), (2.0, 1.0, 10), (0.5, 0.005, 10))
    for sigma, rate, steps in cases:
        accountant = opacus.RDPAccountant()
        accountant.history = [(sigma, rate, steps)]
        epsilon = accountant.get_epsilon(DELTA)
        assert 0.99 * epsilon < spent(sigma, rate, steps, DELTA) < 1.1 * epsilon


def test_epsilon_is_never_below_the_tight_accountant(opacus):
    tight = opacus.PRVAccountant()
    tight.history = [(1.0, 0.05, 200)]
    epsilon = spent(1.0, 0.05, 200, DELTA)
    assert tight.get_epsilon(DELTA) < epsilon < 1.2 * tight.get_epsilon(DELTA)


def test_no_steps_spend_nothing_and_no_noise_gives_no_privacy(opacus):
    assert spent(1.0, 0.5, 0, DELTA) == 0
    assert spent(0.0, 0.5, 1, DELTA) == math.inf


def test_huge_noise_spends_nearly_nothing(opacus):
    assert 0 <= spent(1e4, 0.1, 1, DELTA) < 0.01


sigmas, rates = st.floats(0.3, 50), st.floats(1e-3, 1)


@settings(max_examples=12)
@given(sigmas, rates, st.integers(1, 1000), st.floats(1, 3))
def test_more_steps_higher_rates_and_less_noise_spend_more(sigma, rate, steps, factor):
    pytest.importorskip("opacus")
    base = spent(sigma, rate, steps, DELTA)
    slack = 1e-9 * base
    assert spent(sigma, rate, math.ceil(steps * factor), DELTA) >= base - slack
    assert spent(sigma, min(1.0, rate * factor), steps, DELTA) >= base - slack
    assert spent(sigma * factor, rate, steps, DELTA) <= base + slack
    assert spent(sigma, rate, steps, DELTA * factor) <= base + slack


@pytest.mark.long
@settings(max_examples=6)
@given(st.floats(0.05, 50), st.floats(1e-3, 1), st.integers(1, 1000))
def test_calibrated_noise_is_the_smallest_that_keeps_the_budget(epsilon, rate, steps):
    pytest.importorskip("opacus")
    privacy = Privacy(epsilon, DELTA)
    sigma = noise_multiplier(privacy, rate, steps)
    assert spent(sigma, rate, steps, DELTA) <= epsilon
    assert spent(sigma * (1 - 2e-3), rate, steps, DELTA) > epsilon


def test_a_larger_budget_needs_less_noise(opacus):
    noises = [noise_multiplier(Privacy(epsilon, DELTA), 0.1, 100) for epsilon in (0.5, 1, 2, 8)]
    assert noises == sorted(noises, reverse=True)
    assert len(set(noises)) == 4


def test_a_budget_that_cannot_be_kept_is_rejected(opacus):
    with pytest.raises(UnskewError, match=r"epsilon 1e-09 .* cannot be kept over 10 steps"):
        noise_multiplier(Privacy(1e-9, 1e-9), 1.0, 10)


def test_a_huge_budget_needs_hardly_any_noise(opacus):
    assert noise_multiplier(Privacy(1e12, DELTA), 1.0, 1) < 1e-3


def test_sampling_rates_are_at_most_one():
    assert sampling_rate(64, 32) == 0.5
    assert sampling_rate(32, 32) == sampling_rate(5, 32) == 1.0


@pytest.mark.long
def test_the_smallest_client_decides_unless_another_takes_more_steps(opacus):
    privacy, batch, epochs = Privacy(2, DELTA), 32, 10

    def schedule(samples):
        return sampling_rate(samples, batch), epochs * math.ceil(samples / batch)

    def alone(samples):
        return noise_multiplier(privacy, *schedule(samples))

    assert alone(64) > alone(128) > alone(1000)
    assert shared_noise_multiplier(privacy, map(schedule, (1000, 64, 128))) == alone(64)
    # 33 samples: two steps per epoch at rate 0.97; 32 samples: one at rate 1.
    assert alone(33) > alone(32)
    assert shared_noise_multiplier(privacy, map(schedule, (32, 33, 1000))) == alone(33)


@pytest.mark.long
@settings(max_examples=4)
@given(st.lists(st.tuples(st.floats(0.01, 1), st.integers(0, 50)), min_size=1, max_size=5))
def test_shared_noise_keeps_every_budget_and_uses_one_up(schedules):
    pytest.importorskip("opacus")
    privacy = Privacy(3, DELTA)
    if all(steps == 0 for _, steps in schedules):
        with pytest.raises(UnskewError, match="no client takes a step"):
            shared_noise_multiplier(privacy, schedules)
        return
    noise = shared_noise_multiplier(privacy, schedules)
    epsilons = [spent(noise, rate, steps, DELTA) for rate, steps in schedules]
    assert 2.98 < max(epsilons) <= 3


def test_dominated_schedules_are_skipped():
    schedules = [(0.5, 10), (0.4, 10), (0.4, 9), (0.3, 12), (0.5, 10), (0.9, 0), (0.2, 12)]
    assert _undominated(schedules) == [(0.5, 10), (0.3, 12)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, 0.0, 1, DELTA), "rate must be above 0"),
        ((1.0, 1.5, 1, DELTA), "at most 1"),
        ((1.0, 0.5, -1, DELTA), "steps must be at least 0"),
        ((-1.0, 0.5, 1, DELTA), "noise_multiplier must not be negative"),
        ((1.0, 0.5, 1, 0.0), "delta must be between"),
    ],
)
def test_impossible_arguments_are_rejected(arguments, message):
    with pytest.raises(UnskewError, match=message):
        spent(*arguments)


def test_noise_for_no_steps_and_rates_of_no_samples_are_rejected():
    with pytest.raises(UnskewError, match="steps must be at least 1"):
        noise_multiplier(Privacy(1, DELTA), 0.5, 0)
    with pytest.raises(UnskewError, match="samples must be at least 1"):
        sampling_rate(0, 32)


def test_without_opacus_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus.accountants.analysis", None)
    with pytest.raises(UnskewError, match=r'pip install "unskew\[dp\]"'):
        spent(1.2345, 0.54321, 1, DELTA)
