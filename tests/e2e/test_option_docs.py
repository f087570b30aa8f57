"""Every option is documented where it is declared, and the command line shows it."""

from dataclasses import dataclass, fields

import pytest

from unskew.cli.option_docs import meanings_of
from unskew.methods import METHODS, make_method
from unskew.models import MODELS

CLASSES = {**METHODS, **{f"model {name}": cls for name, cls in MODELS.items()}}


@dataclass
class Base:
    first: int = 0
    """The first
    of all, ``0`` or more."""
    second: int = 0
    number = 3
    """Not an option."""


@dataclass
class Derived(Base):
    second: int = 1
    """Another second."""


def test_meanings_are_read_below_fields_and_inherited():
    assert meanings_of(Base) == {"first": "The first of all, 0 or more."}
    assert meanings_of(Derived) == {
        "first": "The first of all, 0 or more.",
        "second": "Another second.",
    }


@pytest.mark.parametrize("name", CLASSES)
def test_every_option_is_documented(name):
    meanings = meanings_of(CLASSES[name])
    undocumented = [field.name for field in fields(CLASSES[name]) if not meanings.get(field.name)]
    assert not undocumented
    for meaning in meanings.values():
        assert meaning[0].isupper()
        assert meaning.endswith(".")


def test_a_method_that_builds_on_another_has_its_options_too():
    assert {"head_epochs", "fallback"} <= set(meanings_of(type(make_method("fedrep").parts[0])))


def default_text(field):
    """The default of a field as ``unskew methods`` shows it."""
    return "none" if field.default is None else str(field.default).lower()


@pytest.mark.parametrize("name", METHODS)
def test_every_default_can_be_given_in_a_spec(name):
    for field in fields(METHODS[name]):
        assert make_method(f"{name}:{field.name}={default_text(field)}") == make_method(name)
