"""Which cases of a sweep run in `make test`, and which only in `make test-all`."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def long_but(quick: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Mark all cases as long except the quick ones."""
    cases = list(cases)
    assert set(quick) <= set(cases), "a quick case is not part of the sweep"
    return [case if case in quick else pytest.param(case, marks=pytest.mark.long) for case in cases]


def long_after(count: int, cases: Iterable[Any]) -> list[Any]:
    """Mark all cases as long except the first ones; a tuple has the arguments of one case."""
    cases = [case if isinstance(case, tuple) else (case,) for case in cases]
    assert count < len(cases), "no case of the sweep is long"
    return [
        pytest.param(*case, marks=pytest.mark.long if place >= count else ())
        for place, case in enumerate(cases)
    ]
