"""Validate options of aggregation rules; each error names the field and its valid range."""

import math
from collections.abc import Collection

from unskew.errors import UnskewError


def between(
    field: str, value: float, low: float, high: float = math.inf, *, below: bool = False
) -> None:
    """Raise unless the value lies in [low, high], or in [low, high) with ``below``."""
    if low <= value <= high and not (below and value == high):
        return
    upper = "" if high == math.inf else f" and {'below' if below else 'at most'} {high:g}"
    raise UnskewError(f"{field} must be at least {low:g}{upper} (got {value})")


def positive(field: str, value: float, high: float = math.inf) -> None:
    """Raise unless the value lies in (0, high]."""
    if not 0 < value <= high:
        upper = "" if high == math.inf else f" and at most {high:g}"
        raise UnskewError(f"{field} must be above 0{upper} (got {value})")


def one_of(field: str, value: object, choices: Collection[object]) -> None:
    """Raise unless the value is one of the choices."""
    if value not in choices:
        listed = ", ".join(str(choice) for choice in choices)
        raise UnskewError(f"{field} must be one of {listed} (got {value!r})")


def enough_clients(rule: str, f: int, clients: int, needed: int) -> None:
    """Raise if a round has too few clients for a rule that tolerates ``f`` bad clients."""
    if clients < needed:
        raise UnskewError(
            f"{rule}: f={f} needs at least {needed} clients, this round has {clients}; "
            "lower f or sample more clients per round"
        )
