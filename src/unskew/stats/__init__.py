"""Statistics of results: metrics, tests over seeds, and verdicts."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unskew.stats.judging import Answers, Pair, judge
    from unskew.stats.sequential import WaveAnswers, judge_waves, plan_waves

__all__ = ["Answers", "Pair", "WaveAnswers", "judge", "judge_waves", "plan_waves"]

_MODULES = dict.fromkeys(("Pair", "Answers", "judge"), "judging") | dict.fromkeys(
    ("WaveAnswers", "judge_waves", "plan_waves"), "sequential"
)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'unskew.stats' has no attribute {name!r}")
    # scipy is slow to import
    return getattr(import_module(f"unskew.stats.{_MODULES[name]}"), name)
