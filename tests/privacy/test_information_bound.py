"""The values of the FedDisk paper's bound, and a check that it holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.errors import UnskewError
from unskew.privacy import information_bound


def test_kappa_is_the_share_of_samples():
    assert information_bound([600, 300, 100, 0]).tolist() == [0.6, 0.3, 0.1, 0.0]
    assert information_bound([5]).tolist() == [1.0]


def test_kappa_of_equal_clients_is_one_over_their_number():
    assert information_bound([600] * 100) == pytest.approx(np.full(100, 0.01))


def entropy(p):
    p = p[p > 0]
    return float(-(p * np.log2(p)).sum())


def information(kappa, q, k):
    """I(Z_k; Z_theta) in bits, from the joint table of client k's draw and the mixture's."""
    others = kappa @ q - kappa[k] * q[k]
    joint = kappa[k] * np.diag(q[k]) + np.outer(q[k], others)
    return entropy(joint.sum(0)) + entropy(joint.sum(1)) - entropy(joint.ravel())


def test_the_bound_is_attained_if_clients_share_no_value():
    # Two clients, 3 : 1, each with a fair coin of different values, so a draw shows its client.
    q = np.array([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    kappa = information_bound([3, 1])
    assert information(kappa, q, 0) == pytest.approx(0.75 * 1.0)
    assert information(kappa, q, 1) == pytest.approx(0.25 * 1.0)


shares = st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any)


@given(st.lists(st.tuples(st.integers(1, 50), shares), min_size=1, max_size=5), st.data())
def test_no_draw_contains_more_information_than_the_bound(clients, data):
    samples, counts = zip(*clients, strict=True)
    q = np.array(counts, float) / np.sum(counts, axis=1, keepdims=True)
    k = data.draw(st.integers(0, len(clients) - 1))
    kappa = information_bound(samples)
    assert information(kappa, q, k) <= kappa[k] * entropy(q[k]) + 1e-9


@pytest.mark.parametrize("samples", [[], [0, 0], [1, -1], [1, float("nan")], [[1, 2]]])
def test_invalid_numbers_of_samples_are_rejected(samples):
    with pytest.raises(UnskewError, match="samples must be"):
        information_bound(samples)
