"""Checks of what a part's hooks return, so that an error names what they must return."""

from collections.abc import Mapping
from typing import Any, TypeVar

from unskew.composition.values import Server, Tensors

T = TypeVar("T")


def expect(kind: type[T], value: Any) -> T:
    """Return what a hook returned if it has the right type; otherwise raise an error."""
    if not isinstance(value, kind):
        raise TypeError(f"it must return a {kind.__name__} (got {type(value).__name__})")
    return value


def expect_tensors(value: Any) -> Tensors:
    """Return what a hook returned if it is a mapping; otherwise raise an error."""
    if not isinstance(value, Mapping):
        raise TypeError(f"it must return a mapping of tensors (got {type(value).__name__})")
    return value


def expect_pair(value: Any) -> tuple[Server, dict[str, Any]]:
    """Return what ``conclude`` returned if it has the right types; otherwise raise an error."""
    match value:
        case (Server() as server, dict() as diagnostics):
            return server, diagnostics
    raise TypeError("conclude must return a Server and a dict of diagnostics")
