"""Federated learning on skewed data: measure the skew, train in spite of it, see what it cost.

Names are loaded on first use, so that ``import unskew`` costs milliseconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from unskew.data.federation import Federation
    from unskew.data.load import load
    from unskew.errors import UnskewError

_HOMES = {
    "Federation": "unskew.data.federation",
    "UnskewError": "unskew.errors",
    "load": "unskew.data.load",
}

__all__ = ["Federation", "UnskewError", "__version__", "load"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'unskew' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
