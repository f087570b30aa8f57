"""How findings name clients, classes and columns."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from unskew.utils.wording import joined

if TYPE_CHECKING:
    from unskew.data.federation import Federation

_LISTED = 5
"""How many clients, classes or columns a finding names."""


def client_name(federation: "Federation", client: int) -> str:
    """Return a client's name, or its number if it has none."""
    names = federation.client_names
    return f"client {client}" if names is None else f"client {str(names[client])!r}"


def class_name(federation: "Federation", label: int) -> str:
    """Return a class's name, or its number if it has none."""
    names = federation.class_names
    return f"class {label}" if names is None else f"class {names[label]!r}"


def column_name(federation: "Federation", column: int) -> str:
    """Return a feature's name, or its number, counted from 0, if it has none."""
    names = federation.feature_names
    return f"column {column}" if names is None else f"column {names[column]!r}"


def listed(names: Iterable[str]) -> str:
    """Return the first names as a list, with the number of the others."""
    found: Sequence[str] = list(names)
    if len(found) <= _LISTED:
        return joined(found)
    return f"{', '.join(found[:_LISTED])} and {len(found) - _LISTED:,} more"
