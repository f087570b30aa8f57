"""Krum, Multi-Krum and Bulyan."""

from statistics import median

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.aggregation import Uploads, bulyan, krum, multi_krum
from unskew.aggregation.distances import pairwise_squared_distances
from unskew.aggregation.krum import _closest_to_median
from unskew.errors import UnskewError

LINE = torch.tensor([[0.0], [1.0], [3.0], [7.0], [100.0]])


def random_rows(seed: int, clients: int, size: int = 5) -> torch.Tensor:
    return torch.randn(clients, size, generator=torch.Generator().manual_seed(seed))


def test_scores_by_hand():
    # f = 1 of five clients: the two smallest squared distances each.
    vector, diagnostics = krum(1).apply(Uploads.of(LINE, clients=[10, 11, 12, 13, 14]))
    assert diagnostics["scores"].tolist() == [1 + 9, 1 + 4, 4 + 9, 16 + 36, 93**2 + 97**2]
    assert diagnostics["selected"].tolist() == [11]
    assert diagnostics["weights"].tolist() == [0, 1, 0, 0, 0]
    assert vector.tolist() == [1.0]


def test_multi_krum_by_hand():
    vector, diagnostics = multi_krum(1, 3).apply(Uploads.of(LINE))
    assert diagnostics["selected"].tolist() == [0, 1, 2]
    torch.testing.assert_close(vector, torch.tensor([4 / 3]))
    # By default all but f.
    assert multi_krum(1).apply(Uploads.of(LINE))[1]["selected"].tolist() == [0, 1, 2, 3]


def test_equal_scores_go_to_the_smallest_id():
    stack = torch.tensor([[0.0, 1], [1, 0], [0, -1], [-1, 0], [9, 9]])
    ids = [5, 3, 9, 4, 1]
    assert krum(1).apply(Uploads.of(stack, clients=ids))[1]["selected"].tolist() == [3]


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 3), st.sampled_from([1e20, -1e20, 1e30]))
def test_krum_selects_an_honest_client(seed, f, far):
    stack = random_rows(seed, 2 * f + 3)
    stack[torch.randperm(len(stack), generator=torch.Generator().manual_seed(seed))[:f]] = far
    honest = {tuple(row.tolist()) for row in stack if row[0] != far}
    assert tuple(krum(f)(Uploads.of(stack)).tolist()) in honest
    rest = multi_krum(f, 2).apply(Uploads.of(stack))[1]["selected"]
    assert all(tuple(stack[int(k)].tolist()) in honest for k in rest)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.sampled_from([-100, 0, 100]))
def test_krum_is_invariant_to_shifts_rotations_and_scales(seed, power):
    stack = random_rows(seed, 7)
    selected = krum(2).apply(Uploads.of(stack))[1]["selected"]
    rotation = torch.linalg.qr(random_rows(seed + 1, 5))[0]
    for moved in (stack * 2.0**power, stack + 3, stack @ rotation):
        assert torch.equal(krum(2).apply(Uploads.of(moved))[1]["selected"], selected)


def test_squared_distances_of_near_and_far_rows():
    stack = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 1.001], [1e20, 0.0]])
    found = pairwise_squared_distances(stack)
    assert found[0, 1] == 0
    assert float(found[0, 2]) == pytest.approx(1e-6, rel=1e-3)
    assert float(found[0, 3]) == pytest.approx(1e40)
    assert torch.equal(found, found.T)


def test_squared_distances_of_many_rows():
    stack = random_rows(3, 11, 300)
    expected = torch.cdist(stack.double(), stack.double()).square()
    torch.testing.assert_close(pairwise_squared_distances(stack), expected)


def test_bulyan_by_hand():
    # f = 1 of seven: Krum selects five iteratively, and the three values closest to their median
    # are averaged. The outliers 50 and -60 are dropped; the mean of 1, 2, 3 is 2.
    stack = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0], [50.0], [-60.0]])
    vector, diagnostics = bulyan(1).apply(Uploads.of(stack))
    assert diagnostics["selected"].tolist() == [0, 1, 2, 3, 4]
    assert vector.tolist() == [2.0]


def test_bulyan_drops_what_is_farther_not_what_is_lower():
    """Seven clients, one bad: five are selected, and three of 0, 0, 1, 1, 2 are closest to 1."""
    stack = torch.tensor([[0.0], [0.0], [1.0], [1.0], [2.0], [500.0], [-600.0]])
    assert bulyan(1)(Uploads.of(stack)).item() == pytest.approx(2 / 3)


@given(st.lists(st.integers(-3, 3), min_size=3, max_size=9), st.integers(1, 9))
def test_the_values_closest_to_the_median_also_where_many_are_equal(values, count):
    count = min(count, len(values))
    ordered = sorted(map(float, values))
    middle = median(ordered)
    nearest = sorted(ordered, key=lambda value: (abs(value - middle), value))[:count]
    found = _closest_to_median(torch.tensor(ordered)[:, None], count)
    assert found.item() == pytest.approx(sum(nearest) / count, abs=1e-6)


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("rule", [krum(1), multi_krum(1, 2), multi_krum(1), bulyan(1)])
def test_a_non_finite_model_is_never_selected(rule, bad):
    stack = torch.randn(7, 20, generator=torch.Generator().manual_seed(0))
    stack[0] = bad
    vector, found = rule.apply(Uploads.of(stack))
    assert 0 not in found["selected"].tolist()
    assert bool(vector.isfinite().all())


@given(st.integers(0, 200))
def test_of_identical_clients_the_smallest_id_is_selected(seed):
    noise = torch.Generator().manual_seed(seed)
    same = torch.randn(1, 33, generator=noise).repeat(6, 1)
    stack = torch.cat([same, torch.randn(5, 33, generator=noise)])
    assert krum(2).apply(Uploads.of(stack))[1]["selected"].tolist() == [0]


def test_bulyan_uses_the_lower_of_two_windows_at_the_same_distance():
    # f = 1 of eight, so the far two are dropped. The median of 0, 1, 2, 4, 5, 6 is 3; the four
    # values closest to it are 1, 2, 4, 5.
    stack = torch.tensor([[0.0], [1.0], [2.0], [4.0], [5.0], [6.0], [500.0], [-600.0]])
    assert bulyan(1)(Uploads.of(stack)).tolist() == [3.0]


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 2), st.sampled_from([1e20, -1e30]))
def test_bulyan_stays_within_the_honest_clients(seed, f, far):
    honest = random_rows(seed, 3 * f + 3)
    stack = torch.cat([torch.full((f, 5), far), honest])
    vector = bulyan(f)(Uploads.of(stack))
    assert bool((vector >= honest.amin(0) - 1e-5).all() & (vector <= honest.amax(0) + 1e-5).all())


def test_without_bad_clients_bulyan_is_the_mean():
    stack = random_rows(4, 9)
    torch.testing.assert_close(bulyan(0)(Uploads.of(stack)), stack.mean(0))


def test_half_of_the_clients_identical():
    stack = torch.cat([torch.ones(4, 5), random_rows(1, 3)])
    assert krum(2)(Uploads.of(stack)).tolist() == [1.0] * 5


@pytest.mark.parametrize(
    ("rule", "clients", "needed"),
    [(krum(1), 4, 5), (multi_krum(2, 1), 6, 7), (bulyan(1), 6, 7), (bulyan(2), 10, 11)],
)
def test_too_few_clients(rule, clients, needed):
    expected = f"needs at least {needed} clients, this round has {clients}"
    with pytest.raises(UnskewError, match=expected):
        rule(Uploads.of(random_rows(0, clients)))
    rule(Uploads.of(random_rows(0, needed)))


def test_bad_options_are_named():
    for make, field in (
        (lambda: krum(-1), "f"),
        (lambda: bulyan(-1), "f"),
        (lambda: multi_krum(1, 0), "m"),
        (lambda: multi_krum(1, 5)(Uploads.of(LINE)), "m"),
    ):
        with pytest.raises(UnskewError, match=f"^{field} must be"):
            make()
