"""Composed methods: parts with options and tensors of their own, clashes, identity by value."""

import pickle
from dataclasses import fields
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic.dataclasses import dataclass

import unskew as us
from every_method import SPECS
from toys import small_federation, vector_of
from unskew import methods
from unskew.aggregation.uploads import Uploads
from unskew.errors import UnskewError
from unskew.methods import METHODS, Aspect, Finished, Method, Server, make_method, with_options
from unskew.methods.fedprox import FedProx
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten
from unskew.utils.specs import OPTIONS

pytestmark = pytest.mark.usefixtures("hooks_called_once")

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
    method = make_method("fedprox:mu=0.1+moon:mu=1+ida+fedadam:server_lr=0.01")
    assert [part.name for part in method.parts] == ["fedprox", "moon", "ida", "fedadam"]
    assert (method.parts[0].mu, method.parts[1].mu) == (0.1, 1.0)
    assert str(method) == "fedprox:mu=0.1+moon+ida+fedadam:server_lr=0.01"


def test_spaces_around_a_plus_are_ignored():
    assert make_method("fedprox:mu=0.1 + ida") == make_method("fedprox:mu=0.1+ida")
    with pytest.raises(UnskewError, match="name a method on both sides of each plus"):
        make_method("fedprox+")


def test_a_plus_in_a_number_is_not_a_composition():
    assert make_method("fedprox:mu=1e+1").parts == (FedProx(mu=10),)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ida+ida", "ida is listed twice; each method may be listed once"),
        ("fedper+fedrep", "fedrep includes fedper; remove fedper"),
        ("fedrep+fedper", "fedrep includes fedper; remove fedper"),
        ("median+krum", "median and krum both replace how uploads are combined"),
        ("fednova+qffl", "fednova and qffl both replace how uploads are combined"),
        ("fedadam+fedyogi", "fedadam and fedyogi both replace the server's step"),
        ("fedadam:tau=0.1+fedavgm", "both replace the server's step; remove one of them"),
        ("ditto+fedala", "ditto and fedala both replace the personal models"),
        ("fedper+fedbabu", "fedper and fedbabu both replace how the head is trained"),
        ("ifca+cfl", "ifca and cfl both replace the number of global models"),
        ("median+ida", "median replaces the clients' weights, to which ida adds"),
        ("ida+median", "median replaces the clients' weights, to which ida adds"),
        (
            "ida+fedfusion:normalise=literal",
            "fedfusion replaces the clients' weights, to which ida adds",
        ),
        ("ida+fedavgg", "did you mean 'fedavg'"),
    ],
)
def test_impossible_compositions_are_rejected(spec, message):
    with pytest.raises(UnskewError, match=message):
        make_method(spec)


def final(method, **options) -> torch.Tensor:
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


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_equal_options_of_two_parts_have_separate_values(runner):
    """The first two clashed over mu, the others over alpha."""
    options = {"model": "mlp:hidden=8", "runner": runner}
    for spec, *others in [
        ("fedprox:mu=0.1+moon:mu=1", "fedprox:mu=0.1+moon:mu=5", "fedprox:mu=1+moon:mu=1"),
        (
            "feddisco:alpha=0.1+feddyn:alpha=0.01",
            "feddisco:alpha=0.9+feddyn:alpha=0.01",
            "feddisco:alpha=0.1+feddyn:alpha=0.1",
        ),
    ]:
        model = final(spec, **options)
        assert not any(torch.equal(model, final(other, **options)) for other in others)


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


# Custom parts.


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Mine(FedProx):
    """A custom method."""


def test_objects_compose_like_spec_strings(federation):
    options = {"model": "logistic", "rounds": 2, "batch_size": 8, "lr": 0.1}
    expected = us.train(federation, "fedprox:mu=0.5+ida+fedavg", **options)
    for method in (Mine(mu=0.5) + "ida+fedavg", Mine(mu=0.5) + make_method("ida") + "fedavg"):
        assert str(method) == "mine:mu=0.5+ida+fedavg"
        assert torch.equal(vector_of(us.train(federation, method, **options)), vector_of(expected))
    assert str("ida" + Mine()) == "ida+mine"
    assert "ida" + Mine() == make_method("ida") + Mine()
    with pytest.raises(UnskewError, match="must be a name or a method object"):
        Mine() + 3


class Counter(us.ClientSide, us.ServerSide):
    """Counts rounds under the names that Other uses too."""

    adds = frozenset({Aspect.WEIGHTS})

    def broadcast(self, server, client):
        return {"value": server.state.get("value", torch.zeros(()))}

    def finish(self, client, start, trained, state):
        value = state.get("value", torch.zeros(())) + self.unit
        return Finished({"value": value}, {"value": value})

    def receive(self, server, uploads):
        assert set(server.state) <= {"value"}
        return {"value": torch.stack(list(uploads.extras["value"])).sum()}

    def client_weights(self, server):
        from unskew.aggregation.weighting import uniform

        return uniform()

    unit = 1


class Other(Counter):
    unit = 10


def test_parts_with_equal_names_of_tensors_do_not_see_each_other(federation):
    class Third(Counter):
        unit = 100

    run = us.train(federation, Other() + "mean", model="logistic", rounds=2, lr=0.1)
    assert run.states[0]["other/value"] == 20
    with pytest.raises(UnskewError, match="other includes counter"):
        Other() + Counter()
    method = Other() + Third()
    run = us.train(federation, method, model="logistic", rounds=2, lr=0.1)
    assert {name: float(value) for name, value in run.states[0].items()} == {
        "other/value": 20,
        "third/value": 200,
    }


def hook(*arguments):
    raise AssertionError


@pytest.mark.parametrize(
    ("group", "members", "message"),
    [
        (us.ServerSide, {"combine": hook}, "Bad defines combine, which is called only if"),
        (
            us.ClientSide,
            {"loss_term": hook, "replaces": frozenset({Aspect.LOCAL_LOSS})},
            r"add adds = frozenset\(\{Aspect.LOCAL_LOSS",
        ),
        (
            us.ServerSide,
            {"adapt": hook},
            "defines adapt, a hook of Setup; derive it from Setup too",
        ),
        (
            us.ClientSide,
            {"adds": frozenset({Aspect.LOCAL_LOSS})},
            "adds the local loss; derive it from ClientSide and define loss_term",
        ),
        (
            us.Personalization,
            {"replaces": frozenset({Aspect.SERVER_STEP})},
            "replaces the server's step; derive it from ServerSide and define step",
        ),
        (us.ServerSide, {"replaces": {Aspect.HEAD}}, "make it a frozenset"),
        (us.ServerSide, {"needs": frozenset({"labels"})}, "needs 'labels'; it can be"),
    ],
)
def test_declarations_and_hooks_must_match(group, members, message):
    with pytest.raises(TypeError, match=message):
        type("Bad", (group,), members)


@pytest.mark.parametrize(
    ("members", "other", "message"),
    [
        ({"tensor_scope": "fedprox"}, "fedprox", "have the same tensor_scope"),
        ({"name": "models"}, "ifca", "a part cannot be called 'models'"),
        ({"name": "a+b"}, "ida", "choose another name"),
    ],
)
def test_the_tensors_of_two_parts_cannot_be_mixed_up(members, other, message):
    part = type("Custom", (us.ClientSide,), members)()
    with pytest.raises(UnskewError, match=message):
        part + other


def test_methods_with_several_models_are_built_by_make_method():
    with pytest.raises(UnskewError, match=r"build ifca with unskew\.methods\.make_method"):
        Method(make_method("ifca").parts)


@pytest.mark.parametrize("other", ["feddna", "scaffold", "fedgen:hidden=8,generator_steps=2"])
def test_a_round_that_afl_leaves_out_changes_no_other_part(other):
    """With so large a rate, the mixture gives some cohorts weight 0."""
    federation = small_federation(sizes=(20, 13, 9, 7), unit=True)
    options = {"model": "mlp:hidden=6,norm=batch", "rounds": 12, "participation": 0.25}
    run = us.train(
        federation, f"afl:mixture_lr=50+{other}", batch_size=4, lr=0.1, runner="loop", **options
    )
    rows = [table for table in run.client_tables if table["kind"] == "round"]
    assert any(not any(table["weight"]) for table in rows)
    assert max(run.curve("global", "loss")[1]) < 2


def test_a_client_uses_what_was_sent_for_the_model_it_chose():
    """Model 0 has a control variate before the others; clients of these must not use it."""
    seen = []

    class Recorded(type(make_method("scaffold").parts[0])):
        def prepare(self, client, start, payload, state):
            seen.append((client.round, client.id, "control" in payload))
            return super().prepare(client, start, payload, state)

    federation = small_federation(sizes=(12, 9, 8, 7, 9, 10))
    method = Recorded() + "ifca:models=3"
    options = {"model": "mlp:hidden=6", "rounds": 5, "cohort": 2, "lr": 0.1, "seed": 2}
    run = us.train(federation, method, runner="loop", **options)
    chosen = {
        (table["round"] - 1, k): model
        for table in run.client_tables
        if table["kind"] == "round"
        for k, model in zip(table["client"], table["diagnostics"]["cluster"], strict=True)
    }
    trained = {model: min(t for (t, _), m in chosen.items() if m == model)
               for model in set(chosen.values())}  # fmt: skip
    assert len(trained) > 1
    for round_, client, received in seen:
        assert received == (trained[chosen[round_, client]] < round_)


def test_a_method_itself_is_not_a_base_class():
    with pytest.raises(TypeError, match="derive it from ClientSide, ServerSide"):

        class Old(Method):
            pass


# Identity by value.


def values_of(field):
    """Values that a field of a method can have, as texts of a spec string."""
    alternatives = {
        float: st.floats(1e-12, 0.49).map(repr),
        int: st.integers(1, 200).map(str),
        bool: st.sampled_from(["true", "false"]),
    }
    known = alternatives.get(type(field.default), st.nothing())
    choices = [value for value in get_args(field.type) if isinstance(value, str)]
    known |= st.sampled_from(choices) if choices else st.nothing()
    return known | (st.just("none") if field.default is None else st.nothing())


def compositions():
    """Random compositions with random values of up to two options per part."""

    def part(name):
        fields_ = fields(METHODS[name])
        options = st.lists(st.sampled_from(fields_), max_size=2, unique_by=lambda each: each.name)
        texts = options.flatmap(
            lambda chosen: st.tuples(
                *(values_of(each).map(f"{each.name}={{}}".format) for each in chosen)
            )
        )
        return texts.map(lambda each: f"{name}:{','.join(each)}" if each else name)

    names = st.lists(st.sampled_from(sorted(METHODS)), min_size=1, max_size=4, unique=True)
    return names.flatmap(lambda each: st.tuples(*map(part, each))).map("+".join)


@given(compositions())
def test_a_spec_describes_its_method_completely(spec):
    try:
        method = make_method(spec)
    except UnskewError:
        return  # the parts clash, or a value is out of range
    again = make_method(str(method))
    assert again == method
    assert hash(again) == hash(method)
    assert pickle.loads(pickle.dumps(method)) == method
    assert str(again) == str(method)


@pytest.mark.parametrize("spec", SPECS)
def test_single_methods_are_equal_by_value(spec):
    method = make_method(spec)
    assert method == make_method(spec)
    assert len({method, make_method(spec), pickle.loads(pickle.dumps(method))}) == 1
    assert method.parts[0].name == spec.partition(":")[0]


def test_the_order_of_parts_is_part_of_a_method():
    assert make_method("fedprox+ida") != make_method("ida+fedprox")


def test_fedbabu_has_no_samples_to_fine_tune_on_where_they_are_pooled():
    federation = small_federation(sizes=(6, 5))
    with pytest.raises(UnskewError, match="which central pools on the server"):
        us.train(federation, "fedbabu+central", model="mlp:hidden=4", rounds=1)


def test_only_options_of_a_part_can_be_changed():
    with pytest.raises(UnskewError, match="method 'fedavg' has no part 'fedprox'"):
        with_options(make_method("fedavg"), {("fedprox", "mu"): 0.1})


def test_the_names_of_the_package():
    assert "make_method" in dir(methods)
    with pytest.raises(AttributeError, match="has no attribute 'make_methods'"):
        _ = methods.make_methods
