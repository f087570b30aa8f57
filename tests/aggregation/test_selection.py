"""The mean of the middle values, by a comparator network or by sorting."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.aggregation.selection import (
    MAX_NETWORK_ROWS,
    middle_mean,
    middle_network,
    sorted_columns,
)


def middle(block: torch.Tensor, trim: int) -> torch.Tensor:
    return middle_mean(block, torch.empty_like(block), trim)


def test_by_hand():
    block = torch.tensor([[9.0, -1.0], [1.0, 0.0], [3.0, 7.0], [4.0, 2.0], [-8.0, 2.0]])
    assert middle(block, 2).tolist() == [3, 2]
    assert middle(block, 1).tolist() == pytest.approx([8 / 3, 4 / 3])
    assert middle(block, 0).tolist() == pytest.approx([9 / 5, 2])
    assert middle(block[:4], 1).tolist() == [3.5, 1]
    assert middle(block[:1], 0).tolist() == [9, -1]
    assert block[0].tolist() == [9, -1]


@pytest.mark.parametrize("rows", range(1, 11))
def test_the_network_separates_all_zeros_and_ones(rows):
    """A network that is right for zeros and ones is right for all numbers (Knuth)."""
    every = torch.tensor(list(product([0.0, 1.0], repeat=rows))).T.contiguous()
    ordered = every.sort(dim=0).values
    for trim in range((rows + 1) // 2):
        expected = ordered[trim : rows - trim].mean(0)
        torch.testing.assert_close(middle(every, trim), expected)


@settings(max_examples=40)
@given(st.integers(0, 1000), st.integers(1, MAX_NETWORK_ROWS + 20), st.floats(0, 0.499))
def test_any_number_of_rows_agrees_with_sorting(seed, rows, share):
    block = torch.randn(rows, 9, generator=torch.Generator().manual_seed(seed))
    trim = int(share * rows)
    expected = np.sort(block.numpy(), axis=0)[trim : rows - trim].mean(0)
    np.testing.assert_allclose(middle(block, trim).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_the_network_omits_unused_comparators():
    assert middle_network(20, 0) == ()
    everything = middle_network(3, 1)
    # The median of three needs three comparators, and one output of the last two is unused.
    assert len(everything) == 3
    assert sum(step.smaller + step.larger for step in everything) == 4
    assert len(middle_network(20, 9)) < len(middle_network(20, 4)) + 1 < 103


def test_sorting_does_not_modify_the_block():
    block = torch.tensor([[3.0, 1.0], [2.0, 4.0]])
    assert sorted_columns(block, torch.empty_like(block)).tolist() == [[2, 1], [3, 4]]
    assert block.tolist() == [[3, 1], [2, 4]]
