from dataclasses import fields
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.methods import make_method
from unskew.utils import specs


@dataclass(frozen=True, config=specs.OPTIONS)
class Prox:
    mu: Annotated[float, Field(ge=0)] = 0.1
    steps: int | None = None
    fast: bool = False


@dataclass(frozen=True, config=specs.OPTIONS)
class Required:
    level: float
    kind: str = "plain"


TABLE = {"prox": Prox, "required": Required}


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("iid", "iid", {}),
        ("iid:", "iid", {}),
        ("dirichlet:alpha=0.1,min_size=10", "dirichlet", {"alpha": "0.1", "min_size": "10"}),
        (" dirichlet : alpha = 0.1 ", "dirichlet", {"alpha": "0.1"}),
        ("a:min-size=None", "a", {"min_size": None}),
        ("a:x=1=2", "a", {"x": "1=2"}),
    ],
)
def test_parse(text, name, options):
    assert specs.parse(text) == (name, options)


def test_options_given_twice_and_infinite_options_are_rejected():
    with pytest.raises(UnskewError, match="mu is given twice"):
        specs.parse("fedprox:mu=0.1,mu=0.2")
    with pytest.raises(UnskewError, match="mu must be a finite number"):
        make_method("fedprox:mu=1e400")


def test_an_option_without_a_value_is_rejected():
    with pytest.raises(UnskewError, match="write options as key=value; 'fast' has no '='"):
        specs.parse("prox:fast")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("fedavg", ["fedavg"]),
        ("fedavg, mean", ["fedavg", "mean"]),
        ("prox:mu=0.01,moon:mu=1,t=0.5", ["prox:mu=0.01", "moon:mu=1,t=0.5"]),
        ("a:x=1,y=2,b", ["a:x=1,y=2", "b"]),
        ("", []),
    ],
)
def test_split_list(text, parts):
    assert specs.split_list(text) == parts


@given(
    st.lists(
        st.builds(
            specs.spec_of,
            st.builds(Prox, st.floats(0, 100), st.none() | st.integers(), st.booleans()),
            st.just("prox"),
        ),
        max_size=5,
    )
)
def test_a_joined_list_of_spec_strings_can_be_split(texts):
    assert specs.split_list(",".join(texts)) == texts


def test_build_converts_text_to_types():
    assert specs.build(TABLE, "prox:mu=2,steps=3,fast=true", "method") == Prox(2.0, 3, True)
    assert specs.build(TABLE, "prox", "method") == Prox()


@given(st.builds(Prox, st.floats(0, 1e9), st.none() | st.integers(), st.booleans()))
def test_spec_strings_round_trip(method):
    assert specs.build(TABLE, specs.spec_of(method, "prox"), "method") == method


def test_a_spec_string_leaves_defaults_out():
    assert specs.spec_of(Prox(), "prox") == "prox"
    assert specs.spec_of(Prox(fast=True), "prox") == "prox:fast=true"
    assert specs.spec_of(Required(0.5), "required") == "required:level=0.5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("porx", "method: 'porx' is not known; did you mean 'prox'?"),
        ("zzz", "method: 'zzz' is not known; there are: prox, required"),
        ("prox:nu=1", "method 'prox' has no option 'nu'; did you mean 'mu'?"),
        ("prox:zzzzz=1", "method 'prox' has no option 'zzzzz'; it takes: mu, steps, fast"),
        ("prox:mu=-1", "method 'prox': mu must be greater than or equal to 0 (got '-1')"),
        ("required", "method 'required': level is missing"),
    ],
)
def test_errors_are_one_line_that_names_the_field(text, message):
    with pytest.raises(UnskewError) as caught:
        specs.build(TABLE, text, "method")
    assert str(caught.value) == message


def test_an_error_names_every_invalid_field():
    with pytest.raises(UnskewError) as caught:
        specs.build(TABLE, "prox:mu=x,steps=y", "method")
    assert all(field.name in str(caught.value) for field in fields(Prox)[:2])
