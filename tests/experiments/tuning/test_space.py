"""What is searched for a method, and the quasi-random settings that fill it."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

from unskew.composition.search_space import LogRange
from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.experiments.tuning.plan import make_plan
from unskew.experiments.tuning.space import Space, check_disjoint, free_options
from unskew.methods import METHODS, make_method, with_options
from unskew.methods.fedprox import FedProx


def space_of(spec, **tune):
    plan = make_plan({"lr": [0.01, 1.0], **tune}, Settings(lr=0.1), [0])
    return Space.of(make_method(spec), plan)


def test_the_learning_rate_the_declared_options_and_the_norm_are_searched():
    assert space_of("fedavg").ranges == {"lr": LogRange(0.01, 1.0)}
    assert space_of("fedprox", clip=[10]).ranges == {
        "lr": LogRange(0.01, 1.0),
        "fedprox.mu": METHODS["fedprox"].grid["mu"],
        "clip": (0.0, 10.0),
    }
    assert list(space_of("fedavgm+fedprox").ranges) == [
        "lr", "fedavgm.server_lr", "fedavgm.server_momentum", "fedprox.mu",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "method",
    [
        "fedprox:mu=0.5",
        "fedprox:mu=0.01",
        FedProx(mu=0.01),
        pickle.loads(pickle.dumps(FedProx(mu=0.01))),
    ],
)
def test_a_given_value_stays_also_if_it_is_the_default(method):
    assert free_options(make_method(method)) == {}
    assert list(free_options(make_method(method) + "moon")) == [
        ("moon", option) for option in METHODS["moon"].grid
    ]


def test_other_options_than_the_given_ones_are_searched():
    for given in ("server_lr=0.3", "server_lr=1"):
        space = space_of(f"fedavgm:{given}")
        assert list(space.ranges) == ["lr", "fedavgm.server_momentum"]
        trial = space.trial({"lr": 0.1, "fedavgm.server_momentum": 0.5})
        assert trial.method.parts[0].server_lr == make_method(f"fedavgm:{given}").parts[0].server_lr


def test_what_was_given_does_not_distinguish_methods():
    one, other = make_method("fedprox:mu=0.01"), make_method("fedprox")
    assert (one, hash(one), one.spec) == (other, hash(other), other.spec)
    assert (one.given_spec, other.given_spec) == ("fedprox:mu=0.01", "fedprox")


def test_the_requested_setting_and_its_trial():
    space = space_of("fedadam", clip=[10])
    assert space.requested(0.1) == {"lr": 0.1, "fedadam.server_lr": 0.1, "clip": 0.0}
    trial = space.trial({"lr": 0.123456, "fedadam.server_lr": 0.0123456, "clip": 10.0})
    assert (trial.name, trial.lr, trial.clip) == ("fedadam:server_lr=0.0123", 0.123, 10.0)
    assert trial.text == "fedadam:server_lr=0.0123, lr 0.123, clip 10"
    assert space.trial(space.requested(0.1)).clip is None


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_has_a_setting_that_is_its_default(name):
    space = space_of(name)
    assert space.trial(space.requested(0.1)).name == make_method(name).spec


def test_quasi_random_settings_fill_the_space_evenly():
    space = space_of("fedadam")
    settings = space.quasi_random(8, seed=0)
    assert settings == space.quasi_random(8, seed=0) != space.quasi_random(8, seed=1)
    for name in ("lr", "fedadam.server_lr"):
        found = space.ranges[name]
        shares = [
            math.log(s[name] / found.low) / math.log(found.high / found.low) for s in settings
        ]
        assert all(0 <= share < 1 for share in shares)
        assert np.histogram(shares, bins=4, range=(0, 1))[0].min() >= 1  # no quarter is empty


def test_the_outer_tenth_of_a_range_is_its_edge():
    space = space_of("fedadam")  # two decades of lr, three of server_lr
    assert space.edges({"lr": 0.1, "fedadam.server_lr": 0.1}) == {}
    edges = space.edges({"lr": 0.01 * 10**0.19, "fedadam.server_lr": 10**-0.29})
    assert edges == {"lr": "low", "fedadam.server_lr": "high"}
    assert space.edges({"lr": 0.01 * 10**0.21, "fedadam.server_lr": 10**-0.31}) == {}


def test_the_ends_of_a_list_of_numbers_are_its_edges():
    space = space_of("fedprox")
    values = space.ranges["fedprox.mu"]
    found = [space.edges({"lr": 0.1, "fedprox.mu": mu}) for mu in values]
    assert found == [{"fedprox.mu": "low"}, *[{}] * (len(values) - 2), {"fedprox.mu": "high"}]


def test_options_of_two_values_or_of_words_have_no_edge():
    space = replace(
        space_of("fedavg"), ranges={"two": (1, 2), "words": ("a", "b", "c"), "yes": (False, True)}
    )
    assert space.edges({"two": 2, "words": "a", "yes": True}) == {}


def test_a_range_is_extended_beyond_its_edge():
    wider, probe = space_of("fedavg").extended("high")
    assert (wider.lr_range, probe) == ((0.01, 4.0), 2.0)
    wider, probe = space_of("fedavg").extended("low")
    assert (wider.lr_range, probe) == ((0.0025, 1.0), 0.005)


def test_options_change_in_their_part_alone():
    method = with_options(make_method("fedprox+moon"), {("fedprox", "mu"): 0.5})
    assert method.spec == "fedprox:mu=0.5+moon"
    assert with_options(make_method("qffl"), {("qffl", "q"): 5}).spec == "qffl:q=5.0"


def test_methods_with_overlapping_searches_are_an_error():
    distinct = ("fedprox", "fedprox:mu=0.5", "fedavg", "ditto", "fedadam", "fedadam:tau=0.1")
    check_disjoint([make_method(spec) for spec in distinct])
    for one, other, both in [
        ("fedprox", "fedprox:mu=0.1", r"fedprox:mu=0\.1"),
        ("fedadam", "fedadam:server_lr=0.5", r"fedadam:server_lr=0\.5"),
    ]:
        with pytest.raises(UnskewError, match=rf"may both become {both}; remove one of them"):
            check_disjoint([make_method(one), make_method(other)])
