"""Weighted averages: values computed by hand, and properties that hold for all numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import nn

from unskew.aggregation.combine import weighted_sum
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import by_samples, on_simplex, uniform
from unskew.models.layout import Layout

STACK = torch.tensor([[0.0, 8.0], [4.0, 0.0]])


def averaged(weighting, uploads: Uploads) -> torch.Tensor:
    return weighted_sum(uploads.stack, weighting(uploads), uploads.layout)


def test_by_samples_by_hand():
    uploads = Uploads.of(STACK, samples=[3, 1])
    assert by_samples()(uploads).tolist() == [0.75, 0.25]
    assert averaged(by_samples(), uploads).tolist() == [1, 6]


def test_uniform_by_hand():
    uploads = Uploads.of(STACK, samples=[3, 1])
    assert uniform()(uploads).tolist() == [0.5, 0.5]
    assert averaged(uniform(), uploads).tolist() == [2, 4]


def test_statistics_are_averaged_and_counters_take_the_maximum():
    layout = Layout.of(nn.BatchNorm1d(1))  # weight, bias, mean, variance, counter
    stack = torch.tensor([[1.0, 2, 3, 4, 7], [5.0, 6, 7, 8, 9]])
    assert weighted_sum(stack, torch.tensor([0.75, 0.25]), layout).tolist() == [2, 3, 4, 5, 9]


def test_the_stack_is_not_modified():
    before = STACK.clone()
    averaged(by_samples(), Uploads.of(STACK, samples=[3, 1]))
    assert torch.equal(STACK, before)


finite = st.floats(-1e6, 1e6, width=32)
stacks = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 8), st.integers(1, 12)), elements=finite
)


@st.composite
def stacks_and_samples(draw):
    stack = draw(stacks)
    samples = draw(st.lists(st.integers(1, 10**6), min_size=len(stack), max_size=len(stack)))
    return torch.from_numpy(stack), samples


def tolerance(stack: torch.Tensor) -> float:
    return 1e-5 * float(stack.abs().max()) + 1e-30


@given(stacks_and_samples())
def test_every_coordinate_lies_between_the_clients(given_uploads):
    stack, samples = given_uploads
    for weighting in (by_samples(), uniform()):
        result = averaged(weighting, Uploads.of(stack, samples))
        assert bool((result >= stack.amin(0) - tolerance(stack)).all())
        assert bool((result <= stack.amax(0) + tolerance(stack)).all())


@given(stacks_and_samples(), st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(given_uploads, random):
    stack, samples = given_uploads
    order = list(range(len(stack)))
    random.shuffle(order)
    shuffled = Uploads.of(stack[order], [samples[k] for k in order], clients=order)
    for weighting in (by_samples(), uniform()):
        expected = averaged(weighting, Uploads.of(stack, samples))
        assert torch.equal(averaged(weighting, shuffled), expected)


@given(stacks_and_samples())
def test_renaming_clients_permutes_weights_and_keeps_the_mean(given_uploads):
    stack, samples = given_uploads
    flipped = Uploads.of(stack.flip(0), samples[::-1])
    weights = by_samples()(Uploads.of(stack, samples))
    torch.testing.assert_close(by_samples()(flipped), weights.flip(0))
    torch.testing.assert_close(
        averaged(by_samples(), flipped),
        averaged(by_samples(), Uploads.of(stack, samples)),
        rtol=0,
        atol=tolerance(stack),
    )


@given(stacks_and_samples())
def test_identical_clients_give_that_model(given_uploads):
    stack, samples = given_uploads
    same = stack[:1].expand_as(stack).clone()
    result = averaged(by_samples(), Uploads.of(same, samples))
    torch.testing.assert_close(result, stack[0], rtol=0, atol=tolerance(stack))


@given(stacks, st.integers(1, 10**6))
def test_one_client_gives_its_model_bit_for_bit(stack, samples):
    one = torch.from_numpy(stack[:1])
    for weighting in (by_samples(), uniform()):
        assert torch.equal(averaged(weighting, Uploads.of(one, [samples])), one[0])


@given(
    st.lists(st.floats(0, allow_infinity=False, allow_nan=False), min_size=1, max_size=20).filter(
        any
    )
)
def test_weights_are_on_the_simplex(raw):
    weights = on_simplex(torch.tensor(raw, dtype=torch.float64))
    assert weights.dtype == torch.float64
    assert bool(torch.isfinite(weights).all())
    assert bool((weights >= 0).all())
    assert float(weights.sum()) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    "raw", [[1.0, float("nan")], [1.0, float("inf")], [1.0, -0.1], [0.0, 0.0], []]
)
def test_invalid_weights_are_rejected(raw):
    with pytest.raises(ValueError, match="weights must be finite, non-negative and not all zero"):
        on_simplex(torch.tensor(raw))


def test_proportions_survive_scaling():
    raw = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    assert on_simplex(raw).tolist() == [0.125, 0.25, 0.625]
    torch.testing.assert_close(on_simplex(raw * 3e307), on_simplex(raw))
