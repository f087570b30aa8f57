"""The geometric median by Weiszfeld steps."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.aggregation import Uploads, by_samples, geometric_median, uniform, weighted_mean
from unskew.errors import UnskewError


def test_one_step_by_hand():
    # Mean 2, distances 2, 1 and 3: weights 3 : 6 : 2, then (0 x 3 + 1 x 6 + 5 x 2) / 11.
    uploads = Uploads.of(torch.tensor([[0.0], [1.0], [5.0]]))
    vector, diagnostics = geometric_median(iterations=1).apply(uploads)
    torch.testing.assert_close(vector, torch.tensor([16 / 11]))
    assert diagnostics["weights"].tolist() == pytest.approx([3 / 11, 6 / 11, 2 / 11])
    assert diagnostics["objectives"].tolist() == pytest.approx([2.0])  # the mean of 2, 1 and 3


def test_no_iteration_is_fedavg():
    uploads = Uploads.of(torch.tensor([[0.0], [1.0], [5.0]]), samples=[1, 2, 5])
    assert torch.equal(geometric_median(0)(uploads), weighted_mean(by_samples())(uploads))


def test_most_of_the_mass_at_one_point_is_the_limit():
    stack = torch.tensor([[1.0, 2.0]] * 3 + [[50.0, -7.0], [-1e20, 1e20]])
    vector = geometric_median(iterations=200, tolerance=0)(Uploads.of(stack))
    torch.testing.assert_close(vector, torch.tensor([1.0, 2.0]), atol=1e-3, rtol=0)


def test_clients_with_more_samples_have_more_influence():
    # Nine of ten samples are at 4.
    uploads = Uploads.of(torch.tensor([[0.0], [4.0]]), samples=[1, 9])
    vector = geometric_median(iterations=100, tolerance=0)(uploads)
    torch.testing.assert_close(vector, torch.tensor([4.0]), atol=1e-3, rtol=0)
    even = geometric_median(iterations=3, client_weighting=uniform())(uploads)
    torch.testing.assert_close(even, torch.tensor([2.0]))


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 8))
def test_the_objective_never_rises(seed, clients):
    stack = torch.randn(clients, 6, generator=torch.Generator().manual_seed(seed))
    _, diagnostics = geometric_median(iterations=8).apply(Uploads.of(stack))
    objectives = diagnostics["objectives"]
    assert bool((objectives.diff() <= 1e-6 * objectives[:-1]).all())


def test_iteration_stops_when_the_objective_is_constant():
    # Three corners of a regular triangle: the mean is the geometric median.
    stack = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    _, diagnostics = geometric_median(iterations=50).apply(Uploads.of(stack))
    assert len(diagnostics["objectives"]) == 2


@pytest.mark.parametrize(
    ("options", "field"), [({"iterations": -1}, "iterations"), ({"nu": 0}, "nu")]
)
def test_bad_options_are_named(options, field):
    with pytest.raises(UnskewError, match=f"^{field} must be"):
        geometric_median(**options)
