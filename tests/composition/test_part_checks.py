"""Mistakes in the definition of a part are pointed out."""

from dataclasses import dataclass
from types import FunctionType
from typing import ClassVar

import pytest

from unskew.methods import About, ClientSide, Personalization, ServerSide, Setup


def define(*bases, **members):
    return type("GradNorm", bases, {"__module__": __name__, **members})


def hook(self, *arguments):
    """Stands for any hook."""


@pytest.mark.parametrize("group", [ClientSide, ServerSide, Personalization, Setup])
def test_a_group_has_few_hooks(group):
    hooks = [name for name, value in vars(group).items() if isinstance(value, FunctionType)]
    assert 1 <= len([name for name in hooks if not name.startswith("_")]) <= 8


@pytest.mark.parametrize(
    ("name", "meant"), [("preapre", "prepare"), ("losss_term", "loss_term"), ("finnish", "finish")]
)
def test_a_misspelt_hook(name, meant):
    with pytest.raises(TypeError, match=f"^GradNorm defines {name}; did you mean {meant}?"):
        define(ClientSide, **{name: hook})


def test_a_misspelt_declaration():
    with pytest.raises(TypeError, match=r"GradNorm defines replace; did you mean replaces\?"):
        define(ServerSide, replace=frozenset())


def test_a_hook_of_another_group():
    with pytest.raises(TypeError, match="GradNorm defines broadcast, a hook of ServerSide; derive"):
        define(ClientSide, broadcast=hook)
    define(ClientSide, ServerSide, broadcast=hook)


def test_a_property_that_is_defined_as_a_method():
    message = "GradNorm defines receives as a method; write @property in the line above it"
    with pytest.raises(TypeError, match=f"^{message}$"):
        define(ClientSide, receives=hook)
    define(ClientSide, receives=property(hook))


def test_helpers_are_allowed():
    helper = define(ClientSide, _prepared=hook, gradient=hook, distance=hook)
    define(helper, gradient=hook)


def test_an_option_without_dataclass():
    class GradNorm(ClientSide):
        mu: float = 0.1

    message = r"GradNorm has an option mu but is not a dataclass; add @dataclass\(frozen=True"
    for options in ({}, {"mu": 0.5}):
        with pytest.raises(TypeError, match=message):
            GradNorm(**options)

    @dataclass(frozen=True, kw_only=True)
    class Derived(GradNorm):
        nu: float = 0.1

    with pytest.raises(TypeError, match=message):
        Derived(nu=1)


def test_class_variables_are_not_options():
    class GradNorm(ClientSide):
        about: ClassVar[About] = About(title="a", paper="b", kind="objective")

    assert GradNorm() + "ida"
