import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unskew.partition.base import NO_CLIENT, SamplePool
from unskew.partition.counts import (
    apportion,
    even_sizes,
    fill,
    limit_to_available,
    owners_by_count,
)

demands = arrays(
    np.int64, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=st.integers(0, 40)
)


def test_apportion_by_hand() -> None:
    # 10 x (0.5, 0.33.., 0.16..) = 5, 3.33, 1.67: the remaining one goes to the last.
    assert apportion(np.array([[3, 2, 1]]), np.array([10])).tolist() == [[5, 3, 2]]
    assert apportion(np.array([[1, 1, 1]]), np.array([4])).tolist() == [[2, 1, 1]]
    assert apportion(np.array([[0, 0]]), np.array([4])).tolist() == [[0, 0]]


@given(demands, st.integers(0, 500))
def test_apportion_adds_up_and_rounds_by_less_than_one(weights: np.ndarray, total: int) -> None:
    totals = np.full(len(weights), total)
    counts = apportion(weights, totals)
    mass = weights.sum(axis=1)
    assert np.array_equal(counts.sum(axis=1), np.where(mass > 0, total, 0))
    exact = weights * total / np.maximum(mass, 1)[:, None]
    assert np.all(np.abs(counts - exact) < 1 + 1e-9)


def test_even_sizes() -> None:
    assert even_sizes(11, 4).tolist() == [3, 3, 3, 2]


def test_limit_to_available_by_hand() -> None:
    demand = np.array([[6, 1], [3, 1], [0, 1]])
    # Class 0 has 5 for a demand of 9: one each, then 3 more as 5 to 2; class 1 has enough.
    assert limit_to_available(demand, np.array([5, 3])).tolist() == [[3, 1], [2, 1], [0, 1]]


@given(demands, st.data())
def test_limit_to_available_uses_all_and_exceeds_no_demand(
    demand: np.ndarray, data: st.DataObject
) -> None:
    available = data.draw(arrays(np.int64, demand.shape[1], elements=st.integers(0, 60)))
    counts = limit_to_available(demand, available)
    assert np.all((counts >= 0) & (counts <= demand))
    assert np.array_equal(counts.sum(axis=0), np.minimum(demand.sum(axis=0), available))
    enough = (demand > 0).sum(axis=0) <= available
    assert np.all(((counts > 0) == (demand > 0))[:, enough])


def test_fill_replaces_a_missing_class_by_the_clients_other_classes() -> None:
    shares = np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])
    counts = fill(shares, np.array([10, 10]), np.array([4, 100, 6]))
    # Class 0 is halved; client 0 takes 8 of class 1, client 1 all 6 of class 2 and stays small.
    assert counts.tolist() == [[2, 8, 0], [2, 0, 6]]


@given(demands, st.integers(0, 30), st.data())
def test_fill_never_exceeds_sizes_available_samples_or_shares(
    weights: np.ndarray, size: int, data: st.DataObject
) -> None:
    available = data.draw(arrays(np.int64, weights.shape[1], elements=st.integers(0, 60)))
    counts = fill(weights.astype(float), np.full(len(weights), size), available)
    assert np.all(counts.sum(axis=0) <= available)
    assert np.all(counts[weights == 0] == 0)
    assert np.all(counts.sum(axis=1) <= size)
    # A client that stays too small has no class left with available samples.
    for k in np.flatnonzero(counts.sum(axis=1) < size):
        assert np.all((weights[k] == 0) | (counts.sum(axis=0) == available))


def test_owners_by_count_follow_the_order() -> None:
    pool = SamplePool(np.array([0, 1, 0, 1, 0]), 2)
    owner = owners_by_count(pool, np.array([[1, 1], [1, 0]]), np.array([3, 0, 1, 1, 2]))
    # Class 0 in order: rows 2, 4, 0; class 1: rows 1, 3.
    assert owner.tolist() == [NO_CLIENT, 0, 0, NO_CLIENT, 1]
