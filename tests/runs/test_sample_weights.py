"""Histograms of sample weights."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from unskew.composition.values import SAMPLE_WEIGHTS
from unskew.runs.sample_weights import EDGES, weights_table


def states(*clients):
    return {k: {f"feddisk/{SAMPLE_WEIGHTS}": torch.tensor(each)} for k, each in enumerate(clients)}


def test_weights_fall_into_bins_of_a_tenth_of_a_power():
    table = weights_table(states([1.0, 1.2, 1.3]))
    (counts,) = table["counts"]
    assert table["log10_edges"][20:23] == [0, 0.1, 0.2]
    assert counts[20:22] == [2, 1]  # log10 1.2 = 0.079, log10 1.3 = 0.114
    assert (table["client"], table["samples"]) == ([0], [3])


def test_extreme_weights_are_counted_in_the_outer_bins():
    (counts,) = weights_table(states([0.0, 0.01, 100.0, 1e6]))["counts"]
    assert (counts[0], counts[-1], sum(counts)) == (2, 2, 4)


def test_without_sample_weights_there_is_no_table():
    assert weights_table({}) is None
    assert weights_table({0: {"kept": torch.ones(3)}}) is None


def test_clients_without_weights_are_excluded():
    mixed = {0: {}, **{k: {f"feddisk/{SAMPLE_WEIGHTS}": torch.ones(2)} for k in (5, 3)}}
    assert weights_table(mixed)["client"] == [3, 5]


def test_weights_of_zero_have_no_effective_samples():
    assert weights_table(states([0.0, 0.0]))["effective"] == [0.0]


@given(st.lists(st.lists(st.floats(0, 1e4, width=32), min_size=1, max_size=20), min_size=1))
def test_every_sample_is_counted_and_no_share_is_above_one(clients):
    table = weights_table(states(*clients))
    assert [sum(row) for row in table["counts"]] == table["samples"] == list(map(len, clients))
    assert all(len(row) == len(EDGES) - 1 for row in table["counts"])
    assert np.all(np.array(table["effective"]) <= 1 + 1e-9)
