"""Norms and distances of rows of any scale."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unskew.aggregation.distances import (
    distances,
    distances_to_mean,
    from_center,
    power_of_two,
    row_norms,
)


def zero(block: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return torch.zeros(block.shape[1])


@given(st.integers(-120, 120))
def test_norms_by_hand_at_every_scale(power):
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0], [-5.0, 12.0]]) * 2.0**power
    assert (row_norms(rows) / 2.0**power).tolist() == pytest.approx([5, 0, 13], rel=1e-6)


@given(st.integers(0, 1000), st.integers(-80, 80))
def test_powers_of_two_scale_norms_exactly(seed, power):
    rows = torch.randn(3, 50, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(row_norms(rows * 2.0**power), row_norms(rows) * 2.0**power)


def test_a_far_row_does_not_affect_a_near_one():
    rows = torch.tensor([[3.0, 4.0], [1e30, 0.0], [1e-30, 0.0]])
    assert row_norms(rows).tolist() == pytest.approx([5, 1e30, 1e-30], rel=1e-6)


def test_sums_that_float32_cannot_represent():
    rows = torch.full((2, 1000), 1e37)
    assert distances(rows, from_center(zero), norm=1).tolist() == pytest.approx(
        [1e40] * 2, rel=1e-5
    )


@pytest.mark.parametrize("block", [4, 40, 1 << 20])
def test_distances_by_hand_over_several_blocks(monkeypatch, block):
    monkeypatch.setattr("unskew.aggregation.blocks.BLOCK", block)
    rows = torch.tensor([[0.0, 1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 4.0, 3.0, 0.0]] * 10)
    even = torch.full((20,), 0.05)
    assert distances_to_mean(rows, even, norm=1).tolist() == pytest.approx([4] * 20, rel=1e-6)
    assert distances_to_mean(rows, even, norm=2).tolist() == pytest.approx([6**0.5] * 20, rel=1e-6)


@given(st.integers(1, 30), st.integers(0, 40), st.integers(0, 1000))
def test_short_and_long_rows_give_the_same_distances(clients, width, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(clients, width, generator=generator)
    weights = torch.rand(clients, generator=generator) + 0.1
    weights /= weights.sum()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unskew.aggregation.blocks.BLOCK", 50)
        long = distances_to_mean(rows, weights, norm=1)
        patch.setattr("unskew.aggregation.distances._FEWEST_ROWS", 1)
        short = distances_to_mean(rows, weights, norm=1)
    torch.testing.assert_close(short, long, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm", [1, 2])
def test_wide_rows_lose_no_precision(norm):
    signs = torch.randint(0, 2, (64, 1 << 17), generator=torch.Generator().manual_seed(0))
    rows = torch.where(signs == 1, 0.1, 0.3)
    even = torch.full((64,), 1 / 64)
    exact = torch.linalg.vector_norm(rows.double() - rows.double().mean(0), norm, dim=1)
    found = distances_to_mean(rows, even, norm)
    torch.testing.assert_close(found, exact, rtol=1e-6, atol=0)


def test_rows_may_carry_a_gradient():
    rows = torch.tensor([[0.0, 1.0], [2.0, 1.0]], requires_grad=True)
    for norm in (1, 2):
        found = distances_to_mean(rows, torch.tensor([0.5, 0.5]), norm)
        assert found.tolist() == [1, 1]


def test_sums_over_short_rows_that_float32_cannot_represent():
    rows = torch.full((2, 1000), 1e37) * torch.tensor([[1.0], [-1.0]])
    even = torch.tensor([0.5, 0.5])
    assert distances_to_mean(rows, even, norm=1).tolist() == pytest.approx([1e40] * 2, rel=1e-5)


def test_powers_of_two_by_hand():
    assert power_of_two(torch.tensor([0.0, 0.75, 1.0, 5.0])).tolist() == [1, 1, 2, 8]
