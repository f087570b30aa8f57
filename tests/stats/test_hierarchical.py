"""Gains over federations: numbers checked by hand, properties, and the coverage of intervals."""

import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from scipy.stats import t as student

from unskew.errors import UnskewError
from unskew.stats import hierarchical
from unskew.stats.hierarchical import SCALE, Effect, estimate_gain, paired_effects

NUMBERS = st.floats(-30, 30).map(lambda value: round(value, 3))
ERRORS = st.floats(0, 10).map(lambda value: round(value, 3))
EFFECTS = st.lists(st.builds(Effect, NUMBERS, ERRORS), min_size=2, max_size=8)
NO_SPREAD = 1e-3
"""A scale of the prior with which there is practically no spread between federations."""


def gain(*pairs, **options):
    return estimate_gain([Effect(mean, error) for mean, error in pairs], **options)


def test_without_spread_the_mean_is_weighted_by_inverse_variances():
    """Weights 1, 1 and 1/4: (2 + 4 + 9/4) / 2.25 = 11/3, with the standard error 1/1.5."""
    found = gain((2, 1), (4, 1), (9, 2), scale=NO_SPREAD)
    assert found.mean == pytest.approx(11 / 3, abs=1e-4)
    assert (found.low, found.high) == pytest.approx(
        (11 / 3 - 1.96 / 1.5, 11 / 3 + 1.96 / 1.5), abs=1e-3
    )
    assert found.p_helps == pytest.approx(norm.cdf(11 / 3 * 1.5), abs=1e-6)
    assert found.p_exceeds_margin == pytest.approx(norm.cdf(8 / 3 * 1.5), abs=1e-5)
    assert found.spread < NO_SPREAD


def test_with_a_huge_spread_federations_count_equally():
    """The errors 0.1 and 2 are nothing compared with a spread of hundreds of points."""
    found = gain((-200, 0.1), (100, 2), (400, 0.1), scale=500)
    assert found.mean == pytest.approx(100, abs=0.1)
    assert 200 < found.spread < 500
    assert 0.55 < found.p_helps < 0.75


def test_the_grid_agrees_with_numerical_integration():
    """Two federations: the density of tau, times the probability that a new gain is positive."""
    y, error, scale = np.array([1.0, 4.0]), np.array([0.5, 1.5]), SCALE

    def at(tau):
        weight = 1 / (error**2 + tau**2)
        mean, variance = weight @ y / weight.sum(), 1 / weight.sum()
        density = norm.pdf(y, mean, weight**-0.5).prod() * variance**0.5
        return density * norm.pdf(tau / scale), mean, variance + tau**2

    total = quad(lambda tau: at(tau)[0], 0, 100)[0]

    def integral(function):
        return quad(lambda tau: at(tau)[0] * function(*at(tau)[1:]), 0, 100)[0] / total

    found = gain((1.0, 0.5), (4.0, 1.5))
    assert found.mean == pytest.approx(integral(lambda mean, _: mean), abs=1e-4)
    for margin, p in ((0, found.p_helps), (1, found.p_exceeds_margin)):
        exact = integral(lambda mean, variance, m=margin: norm.sf(m, mean, variance**0.5))
        assert p == pytest.approx(exact, abs=1e-4)
    half = quad(lambda tau: at(tau)[0], 0, found.spread)[0] / total
    assert half == pytest.approx(0.5, abs=2e-3)


def test_two_methods_have_the_interval_of_the_paired_t_test():
    """Differences 1, 2, 3: mean 2, standard error 1 / sqrt(3), t quantile 4.303 for 1.960."""
    (effect,) = paired_effects({"fedavg": [0, 0, 0], "new": [1, 2, 3]}, "fedavg").values()
    assert effect.mean == pytest.approx(2)
    assert effect.error == pytest.approx(4.3027 / 1.95996 / 3**0.5, rel=1e-4)


def test_variances_are_pooled_over_methods():
    """Differences of five methods have about four times the degrees of freedom of one pair."""
    rng = np.random.default_rng(0)
    values = {f"m{i}": rng.normal(size=4).tolist() for i in range(6)}
    pooled = [effect.error for effect in paired_effects(values, "m0").values()]
    alone = [
        paired_effects({"m0": values["m0"], name: values[name]}, "m0")[name].error
        for name in values
        if name != "m0"
    ]
    assert np.ptp(pooled) < np.ptp(alone)
    assert np.mean(pooled) < np.mean(alone)


def test_a_method_without_two_common_seeds_has_no_effect():
    values = {"fedavg": [1.0, 2.0, 3.0], "new": [2.0, np.nan, np.nan], "old": [1.0, 1.0, 2.0]}
    assert list(paired_effects(values, "fedavg")) == ["old"]
    with pytest.raises(UnskewError, match="none of the methods"):
        paired_effects(values, "central")


def test_differences_without_variance():
    """Identical methods have no error; a constant difference that of its signs (1 in 8: 1.150)."""
    values = {"fedavg": [1.0, 2.0, 4.0], "same": [1.0, 2.0, 4.0]}
    assert paired_effects(values, "fedavg") == {"same": Effect(0.0, 0.0)}
    (shifted,) = paired_effects({"a": [1, 2, 4], "b": [3, 4, 6]}, "a").values()
    assert (shifted.mean, shifted.error) == pytest.approx((2, 2 / 1.15035), rel=1e-4)
    found = gain((0, 0), (0, 0), (0, 0))
    assert (found.mean, found.p_helps) == pytest.approx((0, 0.5))
    assert found.p_exceeds_margin < 0.01
    assert -0.02 < found.low < found.high < 0.02


def test_one_federation_is_not_enough():
    with pytest.raises(UnskewError, match="two or more federations"):
        gain((1, 1))
    with pytest.raises(UnskewError, match="scale must be above 0"):
        gain((1, 1), (2, 1), scale=0)


@given(EFFECTS, st.randoms())
def test_the_order_of_federations_does_not_matter(effects, random):
    shuffled = random.sample(effects, len(effects))
    first, second = estimate_gain(effects), estimate_gain(shuffled)
    assert vars(second) == pytest.approx(vars(first), rel=1e-6, abs=1e-6)


@given(EFFECTS, NUMBERS)
def test_shifting_all_gains_shifts_the_mean(effects, shift):
    moved = estimate_gain([Effect(each.mean + shift, each.error) for each in effects])
    found = estimate_gain(effects)
    for name in ("mean", "low", "high"):
        expected = getattr(found, name) + shift
        assert getattr(moved, name) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert moved.spread == pytest.approx(found.spread, rel=1e-6, abs=1e-6)


@given(EFFECTS, st.floats(0, 5))
def test_probabilities_are_symmetric(effects, margin):
    found = estimate_gain(effects, margin=margin)
    mirrored = estimate_gain([Effect(-each.mean, each.error) for each in effects], margin=-margin)
    assert 0 <= found.p_exceeds_margin <= found.p_helps <= 1
    assert found.low <= found.mean <= found.high
    assert mirrored.p_helps == pytest.approx(1 - found.p_helps, abs=1e-6)
    assert mirrored.p_exceeds_margin == pytest.approx(1 - found.p_exceeds_margin, abs=1e-6)
    assert mirrored.mean == pytest.approx(-found.mean, abs=1e-6)


@settings(max_examples=20)
@given(EFFECTS)
def test_scaling_everything_scales_the_gain(effects):
    small = estimate_gain([Effect(e.mean / 100, e.error / 100) for e in effects],
                          margin=0.01, scale=SCALE / 100)  # fmt: skip
    large = estimate_gain(effects)
    assert 100 * small.mean == pytest.approx(large.mean, abs=1e-6)
    assert small.p_exceeds_margin == pytest.approx(large.p_exceeds_margin, abs=1e-6)


def simulated_effects(rng, tau, federations=4, seeds=5, methods=5):
    """Effects of a method with a mean gain of 2, from values of several methods and seeds."""
    effects = []
    for _ in range(federations):
        values = rng.normal(size=(methods, seeds)) + 3 * rng.normal(size=seeds)
        values[1] += 2 + tau * rng.normal()
        table = {str(i): row.tolist() for i, row in enumerate(values)}
        effects.append(paired_effects(table, "0")["1"])
    return effects


@pytest.mark.long
def test_intervals_and_predictions_cover_the_truth():
    """If spreads come from the prior, 95 % of the intervals hold the mean gain and that of a new
    federation, whose probability is asked for by the margin."""
    rng = np.random.default_rng(0)
    mean_covered, new_covered = [], []
    for _ in range(250):
        tau = abs(SCALE * rng.normal())
        new = 2 + tau * rng.normal()
        found = estimate_gain(simulated_effects(rng, tau), margin=new)
        mean_covered.append(found.low < 2 < found.high)
        new_covered.append(0.025 < found.p_exceeds_margin < 0.975)
    assert np.mean(mean_covered) == pytest.approx(0.95, abs=0.03)
    assert np.mean(new_covered) == pytest.approx(0.95, abs=0.03)


@pytest.mark.long
@pytest.mark.parametrize(("tau", "least"), [(0.5, 0.95), (12, 0.9)])
def test_intervals_cover_the_mean_gain_for_a_given_spread(tau, least):
    """Cautious for small spreads, and not far below 95 % above the scale of the prior."""
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(500):
        means = 2 + rng.normal(size=5) * (tau**2 + 0.7**2) ** 0.5
        found = estimate_gain([Effect(mean, 0.7) for mean in means])
        covered.append(found.low < 2 < found.high)
    assert np.mean(covered) > least


def test_the_quantile_of_the_docstring():
    """Five seeds: the quantile of 4 degrees of freedom is 1.42 times that of the normal one."""
    assert student.isf(0.025, 4) / norm.isf(0.025) == pytest.approx(1.42, abs=0.005)


def test_the_examples_of_the_docstrings():
    assert doctest.testmod(hierarchical).failed == 0
