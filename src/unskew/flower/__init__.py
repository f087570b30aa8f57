"""Run any method on a Flower federation: one strategy for the server, one app for the nodes.

The names are imported on first use and need ``pip install "unskew[flower]"``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unskew.errors import UnskewError

if TYPE_CHECKING:
    from unskew.flower.app import client_app
    from unskew.flower.kept_model import node_predictor
    from unskew.flower.node_table import NodeTable
    from unskew.flower.strategy import Strategy

_MODULES = {
    "NodeTable": "unskew.flower.node_table",
    "Strategy": "unskew.flower.strategy",
    "client_app": "unskew.flower.app",
    "node_predictor": "unskew.flower.kept_model",
}

__all__ = ["NodeTable", "Strategy", "client_app", "node_predictor"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'unskew.flower' has no attribute {name!r}")
    try:
        value = getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "flwr":
            raise
        raise UnskewError("flower: flwr is not installed; pip install 'unskew[flower]'") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
