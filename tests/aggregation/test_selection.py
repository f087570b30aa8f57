"""The mean of the middle values: by a network of comparators for few rows, by sorting for many."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.aggregation.selection import FEW, middle_mean, middle_network, sorted_columns


def middle(block: torch.Tensor, cut: int) -> torch.Tensor:
    return middle_mean(block, torch.empty_like(block), cut)


def test_by_hand():
    block = torch.tensor([[9.0, -1.0], [1.0, 0.0], [3.0, 7.0], [4.0, 2.0], [-8.0, 2.0]])
    assert middle(block, 2).tolist() == [3, 2]
    assert middle(block, 1).tolist() == pytest.approx([8 / 3, 4 / 3])
    assert middle(block, 0).tolist() == pytest.approx([9 / 5, 2])
    assert middle(block[:4], 1).tolist() == [3.5, 1]
    assert middle(block[:1], 0).tolist() == [9, -1]
    assert block[0].tolist() == [9, -1]


@pytest.mark.parametrize("rows", range(1, 11))
def test_the_network_parts_all_zeros_and_ones(rows):
    """A network that is right for zeros and ones is right for all numbers (Knuth)."""
    every = torch.tensor(list(product([0.0, 1.0], repeat=rows))).T.contiguous()
    ordered = every.sort(dim=0).values
    for cut in range((rows + 1) // 2):
        expected = ordered[cut : rows - cut].mean(0)
        torch.testing.assert_close(middle(every, cut), expected)


@settings(max_examples=40)
@given(st.integers(0, 1000), st.integers(1, FEW + 20), st.floats(0, 0.499))
def test_many_and_few_rows_agree_with_sorting(seed, rows, share):
    block = torch.randn(rows, 9, generator=torch.Generator().manual_seed(seed))
    cut = int(share * rows)
    expected = np.sort(block.numpy(), axis=0)[cut : rows - cut].mean(0)
    np.testing.assert_allclose(middle(block, cut).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_the_network_leaves_out_what_nobody_looks_at():
    assert middle_network(20, 0) == ()
    everything = middle_network(3, 1)
    # The median of three is the larger of the smaller two, or the like: three comparators, one
    # row of the last two of them dropped.
    assert len(everything) == 3
    assert sum(step.smaller + step.larger for step in everything) == 4
    assert len(middle_network(20, 9)) < len(middle_network(20, 4)) + 1 < 103


def test_sorting_leaves_the_block_as_it_is():
    block = torch.tensor([[3.0, 1.0], [2.0, 4.0]])
    assert sorted_columns(block, torch.empty_like(block)).tolist() == [[2, 1], [3, 4]]
    assert block.tolist() == [[3, 1], [2, 4]]
