"""Composed client weightings: products, and bounds that hold after normalising."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unskew.aggregation import (
    ClientWeighting,
    Uploads,
    by_samples,
    clipped,
    inverse_accuracy,
    product,
    uniform,
)
from unskew.aggregation.bounds import bounded
from unskew.aggregation.weighting import on_simplex
from unskew.errors import UnskewError


def fixed(*weights: float, name: str = "fixed") -> ClientWeighting:
    return ClientWeighting(name, lambda uploads: (torch.tensor(weights, dtype=torch.float64), {}))


def of(clients: int, **given_: object) -> Uploads:
    return Uploads.of(torch.zeros(clients, 1), **given_)


def test_products_by_hand():
    uploads = of(2, samples=[3, 1], train_accuracy=[1.0, 0.5])
    explained = product(by_samples(), inverse_accuracy(0.1)).explain(uploads)
    # 3/4 x 1/3 against 1/4 x 2/3.
    assert explained["weights"].tolist() == pytest.approx([0.6, 0.4])
    assert explained["by_samples.weights"].tolist() == [0.75, 0.25]
    assert explained["inverse_accuracy.accuracies"].tolist() == [1.0, 0.5]


def test_a_product_with_uniform_changes_nothing():
    uploads = of(3, samples=[1, 2, 5])
    found = product(uniform(), by_samples(), uniform())(uploads)
    torch.testing.assert_close(found, by_samples()(uploads))


def test_repeated_weightings_are_numbered():
    explained = product(fixed(1, 3), fixed(1, 1)).explain(of(2))
    assert set(explained) == {"weights", "fixed.weights", "fixed2.weights"}


def test_a_product_of_zeros_is_rejected():
    with pytest.raises(UnskewError, match="all weights are zero after fixed3"):
        product(fixed(1, 0), fixed(1, 1), fixed(0, 1))(of(2))


def test_many_factors_do_not_underflow():
    # 0.001 to the power of 150 underflows in float64.
    weights = product(*[by_samples()] * 150)(of(1000))
    torch.testing.assert_close(weights, uniform()(of(1000)))


def test_a_product_needs_a_factor():
    with pytest.raises(UnskewError, match="at least one client weighting"):
        product()


def test_clipping_by_hand():
    weighting = fixed(0.6, 0.3, 0.1)
    # 0.6 is clipped to 0.5; the rest, 0.5, is shared 3 : 1.
    explained = clipped(weighting, high=0.5).explain(of(3))
    assert explained["weights"].tolist() == pytest.approx([0.5, 0.375, 0.125])
    assert explained["unclipped"].tolist() == pytest.approx([0.6, 0.3, 0.1])
    # 0.1 is raised to 0.2; the rest, 0.8, is shared 2 : 1.
    raised = clipped(weighting, low=0.2)(of(3)).tolist()
    assert raised == pytest.approx([0.8 * 2 / 3, 0.8 / 3, 0.2])
    # Clipping 0.6 to 0.35 pushes 0.3 over the bound too: normalising once is not enough.
    assert clipped(weighting, high=0.35)(of(3)).tolist() == pytest.approx([0.35, 0.35, 0.3])


def test_bounds_without_room_between_them_are_the_weights():
    assert clipped(fixed(0.75, 0.25), low=0.5, high=0.5)(of(2)).tolist() == [0.5, 0.5]


def test_clients_of_zero_weight_get_the_weight_above_the_bound():
    assert clipped(fixed(1, 0, 0), high=0.5)(of(3)).tolist() == pytest.approx([0.5, 0.25, 0.25])
    assert clipped(fixed(1, 1, 0), high=0.5)(of(3)).tolist() == pytest.approx([0.5, 0.5, 0])


raw_weights = st.lists(st.floats(0, 1e6), min_size=1, max_size=8).filter(lambda raw: sum(raw) > 0)


@given(raw_weights, st.floats(0, 1), st.floats(0, 1))
def test_bounds_hold_and_order_is_kept(raw, low_share, high_share):
    weights = on_simplex(torch.tensor(raw, dtype=torch.float64))
    even = 1 / len(raw)
    low, high = low_share * even, even + high_share * (1 - even)
    found = bounded(weights, low, high)
    assert float(found.sum()) == pytest.approx(1, abs=1e-9)
    assert float(found.min()) >= low - 1e-9
    assert float(found.max()) <= high + 1e-9
    assert bool((found[weights.argsort()].diff() >= -1e-9).all())
    free = (found > low + 1e-9) & (found < high - 1e-9) & (weights > 0)
    if bool(free.any()):
        factors = found[free] / weights[free]
        assert float(factors.max()) == pytest.approx(float(factors.min()), rel=1e-6)


@given(raw_weights)
def test_wide_bounds_change_nothing(raw):
    weights = on_simplex(torch.tensor(raw, dtype=torch.float64))
    torch.testing.assert_close(bounded(weights, 0.0, 1.0), weights)


def test_bounds_without_room_are_named():
    with pytest.raises(UnskewError, match=r"low and high must leave room for 3 weights.*0\.3333"):
        clipped(uniform(), high=0.3)(of(3))
    with pytest.raises(UnskewError, match="low and high must leave room"):
        clipped(uniform(), low=0.4)(of(3))
    with pytest.raises(UnskewError, match=r"^low must be"):
        clipped(uniform(), low=-0.1)
    with pytest.raises(UnskewError, match=r"^high must be at least 0\.5"):
        clipped(uniform(), low=0.5, high=0.4)


def test_an_exact_bound_is_uniform_despite_rounding():
    uploads = of(49, samples=list(range(1, 50)))
    weights = clipped(by_samples(), high=1 / 49)(uploads)
    torch.testing.assert_close(weights, torch.full((49,), 1 / 49, dtype=torch.float64))


@pytest.mark.parametrize("raw", [[1.0, -1.0, 5.0], [0.0, 0.0], [1.0, float("nan")]])
def test_the_simplex_contract(raw):
    with pytest.raises(ValueError, match="finite, non-negative and not all zero"):
        fixed(*raw)(of(len(raw)))
