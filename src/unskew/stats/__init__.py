"""Statistics of results: metrics, tests over seeds, and verdicts."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unskew.stats.judging import Pair, Verdicts, judge

__all__ = ["Pair", "Verdicts", "judge"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'unskew.stats' has no attribute {name!r}")
    from unskew.stats import judging  # noqa: PLC0415 (scipy is slow to import)

    return getattr(judging, name)
