"""Federated learning on skewed data: measure the skew, train in spite of it, see what it cost.

Names are loaded on first use, so that ``import unskew`` costs milliseconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from unskew.composition.method import Method
    from unskew.composition.parts import ClientSide, Personalization, ServerSide, Setup
    from unskew.data.federation import Federation
    from unskew.data.load import load
    from unskew.data.quality.check import check
    from unskew.engine.metrics import make_metric
    from unskew.errors import UnskewError
    from unskew.experiments.comparison import compare
    from unskew.experiments.training import train
    from unskew.report.comparisons.summary import summarize
    from unskew.runs.run import Run
    from unskew.runs.runs import Runs
    from unskew.skew.diagnosis import diagnose

_HOMES = {
    "ClientSide": "unskew.composition.parts",
    "Federation": "unskew.data.federation",
    "Method": "unskew.composition.method",
    "Personalization": "unskew.composition.parts",
    "Run": "unskew.runs.run",
    "Runs": "unskew.runs.runs",
    "ServerSide": "unskew.composition.parts",
    "Setup": "unskew.composition.parts",
    "UnskewError": "unskew.errors",
    "check": "unskew.data.quality.check",
    "compare": "unskew.experiments.comparison",
    "diagnose": "unskew.skew.diagnosis",
    "load": "unskew.data.load",
    "make_metric": "unskew.engine.metrics",
    "summarize": "unskew.report.comparisons.summary",
    "train": "unskew.experiments.training",
}

__all__ = [
    "ClientSide",
    "Federation",
    "Method",
    "Personalization",
    "Run",
    "Runs",
    "ServerSide",
    "Setup",
    "UnskewError",
    "__version__",
    "check",
    "compare",
    "diagnose",
    "load",
    "make_metric",
    "summarize",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'unskew' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
