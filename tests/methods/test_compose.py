"""Composed methods: weights multiply, terms add, options belong to their parts."""

import pytest
import torch
from pydantic.dataclasses import dataclass

import unskew as us
from toys import small_federation, vector_of
from unskew.aggregation.uploads import Uploads
from unskew.errors import UnskewError
from unskew.methods import make_method, name_of
from unskew.methods.common.base import Method, Server
from unskew.methods.fedprox import FedProx
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten
from unskew.utils.specs import OPTIONS

UPLOADS = Uploads.of(
    torch.tensor([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]]),
    samples=[10, 20, 30],
    train_accuracy=[0.5, 0.9, 0.7],
    label_counts=torch.tensor([[5, 5], [20, 0], [10, 20]]),
)


def weights(spec: str) -> torch.Tensor:
    method = make_method(spec)
    return method.aggregate(Server(torch.zeros(2)), UPLOADS)[1]["weights"]


def test_weights_multiply_and_are_scaled_to_one():
    expected = weights("ida") * weights("fedavg")
    torch.testing.assert_close(weights("ida+fedavg"), expected / expected.sum())
    torch.testing.assert_close(weights("fedavg+ida"), weights("ida+fedavg"))


def test_mean_is_the_neutral_factor():
    torch.testing.assert_close(weights("ida+mean"), weights("ida"))


def test_an_objective_method_keeps_the_weights_of_the_other_part():
    torch.testing.assert_close(weights("fedprox:mu=0.1+ida"), weights("ida"))
    torch.testing.assert_close(weights("fedprox"), weights("fedavg"))


def test_options_belong_to_their_parts():
    method = make_method("fedprox:mu=0.5+ida:norm=2")
    assert (method.mu, method.norm) == (0.5, 2)
    assert name_of(method) == "fedprox:mu=0.5+ida:norm=2"
    assert name_of(make_method(name_of(method))) == name_of(method)


def test_a_plus_in_a_number_is_not_a_composition():
    assert make_method("fedprox:mu=1e+1").mu == 10


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ida+ida", "each method may be listed once"),
        ("fedper+fedrep", "fedrep includes fedper; remove fedper"),
        ("fedrep+fedper", "fedrep includes fedper; remove fedper"),
        ("median+krum", "median and krum exclude each other"),
        ("fedadam+fedyogi", "fedadam and fedyogi exclude each other"),
        (
            "median+ida",
            "median sets the clients' weights itself and cannot be combined with those of ida",
        ),
        ("ida+fedavgg", "did you mean 'fedavg'"),
        ("fedadam:tau=0.1+fedavgm", "exclude each other"),
    ],
)
def test_impossible_compositions_are_rejected(spec, message):
    with pytest.raises(UnskewError, match=message):
        make_method(spec)


def final(method: str, **options) -> torch.Tensor:
    options = {"model": "logistic", "rounds": 3, "batch_size": 8, "lr": 0.1, "epochs": 2} | options
    run = us.train(small_federation(), method, **options)
    return flatten(run.model, FunctionalModel(run.model).layout)


@pytest.mark.parametrize("other", ["mean", "ida", "fedsa", "trimmed:beta=0.3", "fedavgm"])
def test_a_proximal_term_of_zero_changes_nothing(other):
    assert torch.equal(final(f"fedprox:mu=0+{other}"), final(other))


def test_both_parts_have_an_effect():
    both = final("fedprox:mu=1+ida")
    assert not torch.allclose(both, final("ida"))
    assert not torch.allclose(both, final("fedprox:mu=1"))


@pytest.mark.parametrize(
    ("method", "level"),
    [
        ("mean+ditto", "personal"),
        ("ditto+mean", "personal"),
        ("fedprox+fedbn", make_method("fedbn").about.level),
        ("mean+fedprox", "global"),
    ],
)
def test_a_composed_method_is_meant_for_the_most_personal_level_of_its_parts(method, level):
    assert make_method(method).about.level == level


@pytest.mark.parametrize("other", ["scaffold", "feddyn", "moon", "fedala"])
def test_a_second_training_excludes_methods_that_need_a_single_one(other):
    with pytest.raises(
        UnskewError, match=f"fedrep trains twice per round, and {other} needs a single"
    ):
        make_method(f"fedrep+{other}")
    make_method(f"ditto+{other}")  # its second training is another method's


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Mine(FedProx):
    """A custom method."""


def test_objects_compose_like_spec_strings(federation):
    options = {"model": "logistic", "rounds": 2, "batch_size": 8, "lr": 0.1}
    expected = us.train(federation, "fedprox:mu=0.5+ida+fedavg", **options)
    for method in (Mine(mu=0.5) + "ida+fedavg", Mine(mu=0.5) + make_method("ida") + "fedavg"):
        assert name_of(method) == "mine:mu=0.5+ida+fedavg"
        assert torch.equal(vector_of(us.train(federation, method, **options)), vector_of(expected))
    assert name_of("ida" + Mine()) == "ida+mine"


def test_attributes_that_are_not_fields_cannot_be_composed():
    class Kept(Method):
        def __init__(self, factor):
            object.__setattr__(self, "factor", factor)

    with pytest.raises(UnskewError, match="factor would be lost in the composition; make it"):
        Kept(2.0) + "ida"
    with pytest.raises(UnskewError, match="must be a name or a method object"):
        Mine() + 3


def test_an_option_of_two_parts_must_have_one_value():
    with pytest.raises(UnskewError, match="alpha is an option of several parts"):
        make_method("feddisco:alpha=0.5+feddyn:alpha=0.1")
