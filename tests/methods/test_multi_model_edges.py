"""Methods with several models and other server methods, on small and unusual federations.

Each must run without a crash, and keep a golden metric on digits.
"""

from functools import cache

import numpy as np
import pytest

import unskew as us
from marks import long_after
from toys import federation_of

RNG = np.random.default_rng(0)
METHODS = [
    "ifca",
    "qffl",
    "afl",
    "fesem",
    "cfl:wait=0,eps1=9,eps2=0",
    "fedgroup",
    "fedgroup:mix=0.1",
    "fedcluster:groups=2",
    "data-sharing",
    "fedma",
    "feddna",
]
GOLDEN = {
    "fedavg": ("global", 0.5181),
    "ifca": ("personal", 0.6146),
    "qffl:q=0.1": ("global", 0.4652),
    "afl": ("global", 0.3955),
    "fesem": ("personal", 0.6042),
    "cfl:wait=3,eps1=1.5,eps2=0.2": ("personal", 0.8646),
    "fedgroup": ("personal", 0.75),
    "fedcluster:groups=3": ("global", 0.5376),
    "data-sharing": ("global", 0.7298),
    "fedma": ("global", 0.6992),
}


def random_client(samples: int, classes=(0, 1, 2)):
    return RNG.normal(size=(samples, 4)), RNG.choice(classes, samples)


ODD = federation_of(
    random_client(9), random_client(1), random_client(7, classes=(2,)), random_client(8)
)
PAIR = federation_of(random_client(9), random_client(5))
OPTIONS = {"model": "mlp:hidden=4", "rounds": 3, "batch_size": 4, "lr": 0.1}


@pytest.fixture(scope="module")
def digits():
    return us.load("digits", skew="n-classes:n=3", clients=12, seed=0)


@pytest.mark.parametrize("method", METHODS)
def test_a_single_sample_and_a_single_class(method):
    for federation in (ODD, PAIR):
        run = us.train(federation, method, **OPTIONS)
        assert not any(row.get("rejected") for row in run.metrics)
        assert 0 <= run.accuracy <= 1


@pytest.mark.parametrize("method", METHODS)
def test_one_client_per_round(method):
    run = us.train(ODD, method, **(OPTIONS | {"cohort": 1, "rounds": 6}))
    assert [row["clients"] for row in run.metrics] == [1] * 6


@pytest.mark.parametrize("method", [m for m in METHODS if m != "data-sharing"])
def test_batchnorm_and_a_client_it_rejects(method):
    run = us.train(
        ODD, method, **(OPTIONS | {"model": "mlp:hidden=4,norm=batch", "runner": "loop"})
    )
    assert {client for row in run.metrics for client in row.get("rejected", {})} == {"1"}


@pytest.mark.long
@pytest.mark.parametrize(("method", "golden"), GOLDEN.items())
def test_golden(method, golden, digits):
    level, accuracy = golden
    options = {"model": "mlp:hidden=32", "rounds": 10, "lr": 0.1, "epochs": 2}
    run = us.train(digits, method, evaluate_every=10, **options)
    assert run.last(level) == pytest.approx(accuracy, abs=0.03)


@pytest.mark.long
def test_golden_feddna(digits):
    options = {"model": "mlp:hidden=32,norm=batch", "rounds": 5, "lr": 0.1, "runner": "loop"}
    run = us.train(digits, "feddna", evaluate_every=5, **options)
    assert run.accuracy == pytest.approx(0.5515, abs=0.03)


@cache
def on_five_clients(method):
    federation = us.load("digits", clients=5, skew="dirichlet:alpha=0.5", samples=300)
    return us.train(federation, method, **OPTIONS)


@pytest.mark.filterwarnings("ignore::unskew.errors.UnskewWarning")
@pytest.mark.parametrize("several", ["fesem:models=1", "fedgroup:models=1", "cfl:wait=99"])
@pytest.mark.parametrize(
    "other",
    long_after(
        1,
        [
            "fedavgm",
            "data-sharing",
            "latent:vae_rounds=1,encoder=8",
            "feddisk:density_rounds=1,local_rounds=1,ratio_rounds=1,hidden=8,ratio_hidden=8",
        ],
    ),
)
def test_with_one_model_the_other_method_is_unchanged(several, other):
    """The one model sees the state shared by all models, such as a VAE or shared samples."""
    alone = on_five_clients(other)
    joined = on_five_clients(f"{several}+{other}")
    np.testing.assert_allclose(joined.weights, alone.weights, atol=1e-6)
    assert joined.accuracy == pytest.approx(alone.accuracy, abs=0.02)
    assert joined.cost.bytes_down == alone.cost.bytes_down
