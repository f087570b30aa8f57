"""Golden numbers of the methods that keep state on the client, and unusual federations."""

import math

import numpy as np
import pytest
from torch import nn

import unskew as us
from toys import federation_of, small_federation

NAMES = ("fedbn", "fedper", "fedrep", "fedbabu", "ditto", "fedala", "fedgn", "local", "central")
NONE = math.nan
"""The accuracy of a global model that a method has not."""
GOLDEN = {
    "fedbn": (0.841, 0.851, 0.820),
    "fedper": (NONE, NONE, 0.834),
    "fedrep": (NONE, NONE, 0.854),
    "fedbabu": (0.699, 0.723, 0.861),
    "ditto": (0.844, 0.851, 0.874),
    "fedala": (0.855, 0.872, 0.899),
    "fedgn": (0.830, 0.824, 0.824),
    "local": (NONE, NONE, 0.861),
    "central": (0.967, 0.949, 0.949),
}


@pytest.fixture(scope="module")
def digits():
    return us.load("digits", skew="dirichlet:alpha=0.3", clients=6, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_results_on_digits_are_unchanged(digits, name):
    """Six clients, three rounds, an MLP with BatchNorm; accuracies within a few samples."""
    spec = "fedrep:head_epochs=3" if name == "fedrep" else name
    run = us.train(
        digits, spec, model="mlp:hidden=32,norm=batch", rounds=3, batch_size=16, lr=0.1,
        evaluate_every=3, runner="loop",
    )  # fmt: skip
    levels = tuple(run.last(level) for level in ("global", "local", "personal"))
    assert levels == pytest.approx(GOLDEN[name], abs=0.02, nan_ok=True)


# Unusual federations.

NORMED = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
RNG = np.random.default_rng(0)


def client(samples, classes=3):
    return RNG.normal(size=(samples, 5)), RNG.integers(0, classes, samples)


ODD = {
    "one sample, one class, none": federation_of(
        client(9), client(1), client(8, 1), client(0), test=[client(3)] * 4
    ),
    "two, no tests": federation_of(client(9), client(7)),
}


@pytest.mark.parametrize("model", ["mlp:hidden=8", NORMED], ids=["mlp", "normed"])
@pytest.mark.parametrize("odd", sorted(ODD))
@pytest.mark.parametrize("name", NAMES)
def test_unusual_federations_do_not_fail(name, odd, model):
    run = us.train(ODD[odd], name, model=model, rounds=2, batch_size=4, workers=1)
    assert run.rounds == 2
    assert 0 <= run.metrics[-1][run.global_level(run.metric)]["accuracy"] <= 1
    assert math.isnan(run.accuracy) == (not run.has_global_model)


@pytest.mark.parametrize("name", NAMES)
def test_one_client_per_round(name):
    run = us.train(small_federation(), name, model=NORMED, rounds=3, cohort=1, workers=1)
    assert 0 <= run.last("personal") <= 1
