"""The robust rules return what Flower's functions return, where both follow the papers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.aggregation import (
    Rule,
    Uploads,
    bulyan,
    by_samples,
    coordinate_median,
    krum,
    multi_krum,
    trimmed_mean,
    weighted_mean,
)

flower = pytest.importorskip("flwr.server.strategy.aggregate")

seeds = st.integers(0, 10_000)


def agree(rule: Rule, theirs: object, seed: int, clients: int, samples: object = None) -> None:
    """Compare a rule with a function of Flower's list of (arrays, samples)."""
    stack = np.random.default_rng(seed).normal(size=(clients, 12)).astype(np.float32)
    counts = [1] * clients if samples is None else samples
    models = [[row[:8].reshape(2, 4), row[8:]] for row in stack]
    results = list(zip(models, counts, strict=True))
    expected = np.concatenate([part.ravel() for part in theirs(results)])
    ours = rule(Uploads.of(torch.from_numpy(stack), samples=counts))
    np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-5, atol=1e-6)


@settings(max_examples=30)
@given(seeds, st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_fedavg(seed, samples):
    agree(weighted_mean(by_samples()), flower.aggregate, seed, len(samples), samples)


@settings(max_examples=30)
@given(seeds, st.integers(1, 9))
def test_median(seed, clients):
    agree(coordinate_median(), flower.aggregate_median, seed, clients)


@settings(max_examples=30)
@given(seeds, st.integers(1, 9), st.sampled_from([0.0, 0.125, 0.25, 0.375]))
def test_trimmed_mean(seed, clients, beta):
    agree(trimmed_mean(beta), lambda r: flower.aggregate_trimmed_avg(r, beta), seed, clients)


@settings(max_examples=30)
@given(seeds, st.integers(0, 3), st.integers(0, 4))
def test_krum_and_multi_krum(seed, f, more):
    clients = 2 * f + 3 + more
    agree(krum(f), lambda r: flower.aggregate_krum(r, f, 0), seed, clients)
    agree(multi_krum(f, 2), lambda r: flower.aggregate_krum(r, f, 2), seed, clients)


@settings(max_examples=30)
@given(seeds, st.integers(0, 2), st.integers(0, 4))
def test_bulyan(seed, f, more):
    def theirs(results):
        return flower.aggregate_bulyan(results, f, flower.aggregate_krum, to_keep=0)

    agree(bulyan(f), theirs, seed, 4 * f + 3 + more)
