"""From an allocation to weights: identities of FedFusion."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unskew.aggregation.fusion_allocation import Allocation, component_weights, fusion_weights


def allocation_of(rows, c=None):
    b = torch.tensor(rows, dtype=torch.float64)
    c = (b > 0).double() if c is None else c
    return Allocation(rho=c.clone(), c=c, b=b)


@st.composite
def allocations(draw):
    """Random allocations, including hard masks and empty components."""
    clients, components = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    noise = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    mask = torch.rand(clients, components, generator=noise) < draw(st.sampled_from([0.1, 0.5, 1]))
    mask[:, 0] |= ~mask.any(1)
    raw = mask * torch.rand(clients, components, generator=noise).double().add(1e-3)
    return Allocation(
        rho=torch.rand(clients, components, generator=noise).double(),
        c=mask.double(),
        b=raw / raw.sum(1, keepdim=True),
    )


@given(allocations(), st.sampled_from(["softmax", "mass"]), st.integers(0, 100))
def test_weights_are_on_the_simplex(allocation, pi, seed):
    samples = torch.rand(len(allocation.b), generator=torch.Generator().manual_seed(seed)).double()
    for prior in (None, samples + 0.01):
        weights = fusion_weights(allocation, prior, pi)
        assert float(weights.sum()) == pytest.approx(1, abs=1e-12)
        assert bool((weights >= 0).all())


@given(allocations())
def test_by_mass_every_allocation_gives_the_unweighted_mean(allocation):
    clients = len(allocation.b)
    even = torch.full((clients,), 1 / clients, dtype=torch.float64)
    torch.testing.assert_close(fusion_weights(allocation, pi="mass"), even, atol=1e-14, rtol=0)
    samples = torch.arange(1, clients + 1, dtype=torch.float64)
    torch.testing.assert_close(
        fusion_weights(allocation, samples, pi="mass"), samples / samples.sum(), atol=1e-14, rtol=0
    )


@given(allocations())
def test_no_component_has_more_than_e_times_the_weight_of_another(allocation):
    pi = component_weights(allocation, torch.ones(len(allocation.b)).double(), "softmax")
    empty = allocation.shares.sum(0) == 0
    assert bool((pi[empty] == 0).all())
    assert float(pi[~empty].max() / pi[~empty].min()) <= math.e * (1 + 1e-12)


@given(allocations())
def test_literal_weights_sum_to_about_clients_over_components(allocation):
    clients = len(allocation.b)
    weights = fusion_weights(allocation, normalise="literal")
    pi = component_weights(allocation, torch.ones(clients).double(), "softmax")
    assert float(weights.sum()) <= clients * float(pi.max()) + 1e-12
    assert float(weights.sum()) >= clients * float(pi[pi > 0].min()) - 1e-12


@pytest.mark.parametrize("clients", [1, 2, 3, 49, 1000])
def test_one_component_is_the_mean_bit_for_bit(clients):
    allocation = allocation_of([[1.0]] * clients)
    ones = torch.ones(clients, dtype=torch.float64)
    assert torch.equal(fusion_weights(allocation), ones / clients)
    samples = torch.arange(3, 3 + clients, dtype=torch.float64)
    assert torch.equal(fusion_weights(allocation, samples), samples / samples.sum())


def test_by_hand():
    # Three clients in the first of three components, one in the second, none in the third.
    allocation = allocation_of([[1.0, 0, 0]] * 3 + [[0, 1.0, 0]])
    # Eq. 7: softmax of (3/4, 1/4) over the two components with clients.
    first = math.e**0.75 / (math.e**0.75 + math.e**0.25)
    weights = fusion_weights(allocation)
    torch.testing.assert_close(
        weights, torch.tensor([first / 3] * 3 + [1 - first], dtype=torch.float64)
    )
    assert float(weights[3]) > 1.5 * float(weights[0])  # the single client has more weight
    literal = fusion_weights(allocation, normalise="literal")
    assert float(literal.sum()) == pytest.approx(3 * first + (1 - first))


def test_twelve_clients_and_four_components_as_printed_sum_to_three():
    noise = torch.Generator().manual_seed(0)
    b = torch.rand(12, 4, generator=noise).double()
    allocation = allocation_of((b / b.sum(1, keepdim=True)).tolist())
    assert float(fusion_weights(allocation, normalise="literal").sum()) == pytest.approx(3, abs=0.2)
    assert float(fusion_weights(allocation).sum()) == pytest.approx(1)


def test_gaussian_proportions_by_hand():
    # Two clients, two components; b is not on the simplex, and the second client is in one only.
    allocation = allocation_of([[-0.5, 2.0], [0.0, 1.0]], torch.tensor([[1.0, 1.0], [0.0, 1.0]]))
    # Eq. 7: softmax of the means of rho b, (-0.5 + 0) / 2 and (2 + 1) / 2.
    first = math.exp(-0.25) / (math.exp(-0.25) + math.exp(1.5))
    pi = component_weights(allocation, torch.ones(2).double(), "softmax")
    torch.testing.assert_close(pi, torch.tensor([first, 1 - first], dtype=torch.float64))
    # Line 12 as printed: sum over components of pi b c.
    expected = torch.tensor([-0.5 * first + 2 * (1 - first), 1 - first], dtype=torch.float64)
    weights = fusion_weights(allocation, normalise="literal")
    torch.testing.assert_close(weights, expected)
