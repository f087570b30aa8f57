"""A budget checks its numbers, and can be spelled as an option of a method."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.privacy import Privacy
from unskew.utils.specs import OPTIONS, build, create, spec_of


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Careful:
    privacy: Privacy | None = None


def test_a_budget_is_its_numbers():
    assert Privacy(2, 1e-5) == Privacy(epsilon=2.0, delta=1e-5, clip=1.0)


@pytest.mark.parametrize(
    ("numbers", "complaint"),
    [
        ({"epsilon": 0, "delta": 0.1}, "epsilon must be greater than 0"),
        ({"epsilon": float("inf"), "delta": 0.1}, "epsilon must be a finite number"),
        ({"epsilon": float("nan"), "delta": 0.1}, "epsilon must be"),
        ({"epsilon": 1, "delta": 0}, "delta must be greater than 0"),
        ({"epsilon": 1, "delta": 1}, "delta must be less than 1"),
        ({"epsilon": 1, "delta": float("nan")}, "delta must be"),
        ({"epsilon": 1, "delta": 0.1, "clip": 0}, "clip must be greater than 0"),
        ({"epsilon": 1}, "delta is missing"),
    ],
)
def test_impossible_budgets_are_named(numbers, complaint):
    with pytest.raises(UnskewError, match=complaint):
        create(Privacy, numbers, "privacy")


@pytest.mark.parametrize(
    ("spelling", "budget"),
    [
        ("careful", None),
        ("careful:privacy=2/1e-5", Privacy(2, 1e-5)),
        ("careful:privacy=2/1e-5/0.5", Privacy(2, 1e-5, 0.5)),
    ],
)
def test_methods_spell_it(spec, budget):
    assert build({"careful": Careful}, spec, "method").privacy == budget
    assert create(Careful, {"privacy": budget}, "method").privacy == budget


def test_a_mapping_is_a_budget_too():
    made = create(Careful, {"privacy": {"epsilon": 2, "delta": 1e-5}}, "method")
    assert made.privacy == Privacy(2, 1e-5)


@given(st.floats(1e-300, 1e300), st.floats(1e-300, 1, exclude_max=True), st.floats(1e-300, 1e300))
def test_what_is_spelled_is_read_back(epsilon, delta, clip):
    made = Careful(privacy=Privacy(epsilon, delta, clip))
    assert build({"careful": Careful}, spec_of(made, "careful"), "method") == made


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("2", "privacy: write epsilon/delta"), ("0/1e-5", "privacy.epsilon must be greater")],
)
def test_bad_spellings_are_named(text, complaint):
    with pytest.raises(UnskewError, match=complaint):
        build({"careful": Careful}, f"careful:privacy={text}", "method")
