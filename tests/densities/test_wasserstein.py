"""The distance from the normal distribution, compared with formulas and integrals."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr, ndtri
from scipy.stats import norm

from unskew.densities.wasserstein import distance_to_normal
from unskew.errors import UnskewError

ROOT = np.sqrt(2 / np.pi)
VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30).map(np.array)


def quantiles(count):
    return ndtri((np.arange(count) + 0.5) / count)


@pytest.mark.parametrize("shift", [-3.0, -0.1, 0.0, 0.5, 10.0])
def test_the_distance_of_a_shifted_normal_is_its_shift(shift):
    assert distance_to_normal(quantiles(200_000) + shift) == pytest.approx(abs(shift), abs=2e-5)


@pytest.mark.parametrize("sd", [0.0, 0.3, 1.0, 2.5])
def test_a_scaled_normal(sd):
    found = distance_to_normal(sd * quantiles(200_000))
    assert found == pytest.approx(abs(sd - 1) * ROOT, abs=3e-5)


@pytest.mark.parametrize("point", [0.0, 1.3, -1.3, 7.0, 40.0, 1e6, -1e6])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_point_mass(point, count):
    expected = point * (2 * ndtr(point) - 1) + 2 * norm.pdf(point)
    assert distance_to_normal(np.full(count, point)) == pytest.approx(expected, rel=1e-13)


def test_by_hand():
    # Two values at -1 and 1: by symmetry the area of one, 2 * int_0^inf |z - 1| phi(z) dz.
    expected = 2 * (2 * norm.pdf(1) - norm.pdf(0) + 2 * ndtr(1) - 1.5)
    assert distance_to_normal([1.0, -1.0]) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("seed", range(5))
def test_the_area_between_distribution_functions(seed):
    x = np.sort(np.random.default_rng(seed).normal(0.3, 1.5, 6))

    def gap(t):
        return abs(np.searchsorted(x, t, side="right") / 6 - ndtr(t))

    crossings = [norm.ppf(i / 6) for i in range(1, 6)]
    edges = sorted([-12.0, *x, *crossings, 12.0])
    area = sum(quad(gap, a, b)[0] for a, b in pairwise(edges))
    assert distance_to_normal(x) == pytest.approx(area, abs=1e-9)


def test_columns_are_independent():
    x = np.random.default_rng(0).normal(size=(50, 3))
    found = distance_to_normal(x)
    assert found.shape == (3,)
    assert found.tolist() == [distance_to_normal(column) for column in x.T]


@given(VALUES, st.floats(-1e6, 1e6))
def test_a_shift_changes_the_distance_by_at_most_the_shift(x, shift):
    before, after = distance_to_normal(x), distance_to_normal(x + shift)
    assert abs(before - after) <= abs(shift) * (1 + 1e-9) + 1e-8


@given(VALUES)
def test_bounds_and_symmetries(x):
    found = distance_to_normal(x)
    slack = 1e-9 * (1 + abs(x).max())
    assert np.isfinite(found)
    assert found >= abs(x.mean()) - slack  # the normal's mean is 0
    assert found <= abs(x).mean() + ROOT + slack  # the triangle inequality with a point mass at 0
    assert distance_to_normal(x[::-1]) == found
    assert distance_to_normal(-x) == pytest.approx(found, rel=1e-9, abs=1e-9)
    assert distance_to_normal(np.repeat(x, 3)) == pytest.approx(found, rel=1e-9, abs=1e-9)


@given(VALUES)
def test_the_distance_of_far_values_is_their_mean(x):
    shifted = x + 2e6
    assert distance_to_normal(shifted) == pytest.approx(shifted.mean(), rel=1e-12)


@given(st.integers(1, 2000))
def test_the_distance_of_quantiles_is_small_but_not_zero(count):
    assert 0 < distance_to_normal(quantiles(count)) < 2 / np.sqrt(count)


def test_the_distance_of_extreme_values_is_finite():
    assert distance_to_normal([-1e6, 1e6]) == pytest.approx(1e6 - ROOT, rel=1e-12)
    assert np.isfinite(distance_to_normal([-1e300, 0, 1e300]))


@pytest.mark.parametrize(
    ("values", "message"),
    [([], "at least one"), (3.0, "at least one"), ([1, np.nan], "finite"), ([np.inf], "finite")],
)
def test_invalid_values_are_rejected(values, message):
    with pytest.raises(UnskewError, match=message):
        distance_to_normal(values)
