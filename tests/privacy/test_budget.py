"""A budget validates its numbers, and can be an option in a spec string."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.privacy import Privacy
from unskew.utils.specs import OPTIONS, build, create, spec_of


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class WithPrivacy:
    privacy: Privacy | None = None


def test_budgets_with_the_same_numbers_are_equal():
    assert Privacy(2, 1e-5) == Privacy(epsilon=2.0, delta=1e-5, clip=1.0)


@pytest.mark.parametrize(
    ("numbers", "message"),
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
def test_impossible_budgets_are_rejected(numbers, message):
    with pytest.raises(UnskewError, match=message):
        create(Privacy, numbers, "privacy")


@pytest.mark.parametrize(
    ("spec", "budget"),
    [
        ("dp", None),
        ("dp:privacy=2/1e-5", Privacy(2, 1e-5)),
        ("dp:privacy=2/1e-5/0.5", Privacy(2, 1e-5, 0.5)),
    ],
)
def test_a_spec_string_sets_the_budget(spec, budget):
    assert build({"dp": WithPrivacy}, spec, "method").privacy == budget
    assert create(WithPrivacy, {"privacy": budget}, "method").privacy == budget


def test_a_mapping_sets_the_budget():
    method = create(WithPrivacy, {"privacy": {"epsilon": 2, "delta": 1e-5}}, "method")
    assert method.privacy == Privacy(2, 1e-5)


@given(st.floats(1e-300, 1e300), st.floats(1e-300, 1, exclude_max=True), st.floats(1e-300, 1e300))
def test_spec_strings_with_a_budget_round_trip(epsilon, delta, clip):
    method = WithPrivacy(privacy=Privacy(epsilon, delta, clip))
    assert build({"dp": WithPrivacy}, spec_of(method, "dp"), "method") == method


@pytest.mark.parametrize(
    ("text", "message"),
    [("2", "privacy: write epsilon/delta"), ("0/1e-5", "privacy.epsilon must be greater")],
)
def test_invalid_budgets_in_spec_strings_are_rejected(text, message):
    with pytest.raises(UnskewError, match=message):
        build({"dp": WithPrivacy}, f"dp:privacy={text}", "method")
