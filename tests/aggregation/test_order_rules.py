"""The coordinate-wise median and the trimmed mean."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from unskew.aggregation import Uploads, coordinate_median, trimmed_mean, uniform, weighted_mean
from unskew.errors import UnskewError
from unskew.models.layout import Layout

FIVE = torch.tensor([[1.0, 9.0], [2.0, -9.0], [3.0, 0.0], [4.0, 1.0], [1e20, -1e20]])


def random_rows(seed: int, clients: int) -> torch.Tensor:
    return torch.randn(clients, 7, generator=torch.Generator().manual_seed(seed))


def test_medians_by_hand():
    assert coordinate_median()(Uploads.of(FIVE)).tolist() == [3, 0]
    assert coordinate_median()(Uploads.of(FIVE[:4])).tolist() == [2.5, 0.5]


def test_trimmed_means_by_hand():
    vector, diagnostics = trimmed_mean(0.2).apply(Uploads.of(FIVE))
    assert vector.tolist() == [3, pytest.approx((1 + 0 - 9) / 3)]
    assert int(diagnostics["trimmed"]) == 1
    assert trimmed_mean(0.4)(Uploads.of(FIVE)).tolist() == [3, 0]


def test_shares_that_rounding_puts_below_a_whole_number():
    assert int(trimmed_mean(0.29).apply(Uploads.of(torch.zeros(100, 1)))[1]["trimmed"]) == 29


def test_statistics_are_also_sorted_and_counters_take_the_maximum():
    layout = Layout.of(nn.BatchNorm1d(1))  # weight, bias, mean, variance, counter
    stack = torch.tensor([[1.0, 2, 3, 4, 1], [5, 6, 70, 8, 2], [9, 9, 9, 9, 9]])
    uploads = Uploads.of(stack, layout=layout)
    assert coordinate_median()(uploads).tolist() == [5, 6, 9, 8, 9]
    assert trimmed_mean(0.34)(uploads).tolist() == [5, 6, 9, 8, 9]


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 9))
def test_the_limits_of_trimming(seed, clients):
    uploads = Uploads.of(random_rows(seed, clients))
    torch.testing.assert_close(trimmed_mean(0)(uploads), weighted_mean(uniform())(uploads))
    torch.testing.assert_close(trimmed_mean(0.4999)(uploads), coordinate_median()(uploads))
    expected = np.median(uploads.stack.numpy(), axis=0)
    np.testing.assert_allclose(coordinate_median()(uploads).numpy(), expected, rtol=1e-6)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(3, 9), st.sampled_from([-1e30, 1e-30, 1e30]))
def test_results_are_bounded_despite_bad_clients(seed, clients, poison):
    honest = random_rows(seed, clients)
    bad = (clients - 1) // 3
    stack = honest.clone()
    stack[:bad] = poison
    vector = trimmed_mean(0.34)(Uploads.of(stack))
    rest = honest[bad:]
    assert bool((vector >= rest.amin(0) - 1e-5).all() & (vector <= rest.amax(0) + 1e-5).all())


def test_results_do_not_depend_on_the_blocks(monkeypatch):
    stack = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    whole = coordinate_median()(Uploads.of(stack))
    monkeypatch.setattr("unskew.aggregation.blocks.BLOCK", 6 * 7)
    assert torch.equal(coordinate_median()(Uploads.of(stack)), whole)


def test_uploads_are_not_modified():
    stack = torch.tensor([[3.0], [1.0], [2.0]])
    coordinate_median()(Uploads.of(stack))
    assert stack.flatten().tolist() == [3, 1, 2]


@pytest.mark.parametrize("beta", [-0.1, 0.5, 0.7, float("nan")])
def test_bad_shares_are_named(beta):
    with pytest.raises(UnskewError, match=r"^beta must be at least 0 and below 0\.5"):
        trimmed_mean(beta)


def test_sums_that_overflow_are_computed_from_scaled_values():
    rows = torch.tensor([[3e38, 1.0], [2e38, 2.0], [1e38, 6.0]])
    assert trimmed_mean(0.0)(Uploads.of(rows)).tolist() == pytest.approx([2e38, 3])
