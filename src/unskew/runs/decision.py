"""What a comparison that adds seeds has decided, in words, and what the rest would cost."""

from typing import TYPE_CHECKING

from unskew.utils.wording import duration, joined, plural

if TYPE_CHECKING:
    from unskew.runs.run import Run
    from unskew.runs.runs import Runs

_NAMED = 3
"""At most this many undecided methods are named."""


def run_seconds(run: "Run") -> float:
    """Return how long a run was trained and evaluated."""
    return float(sum(row.get("seconds", 0.0) for row in run.metrics))


def decision_text(runs: "Runs") -> str:
    """Return one or two sentences: what is decided after how many seeds, and what is not.

    It is empty for runs whose number of seeds was fixed, and where there is nothing to decide.
    """
    verdict = runs.verdict()
    if runs.waves is None or verdict is None or not verdict.pairs:
        return ""
    judged = runs.waves.judged(verdict.seeds)
    trained = sum(run.seed < judged for run in runs)
    saved = 1 - trained / (judged * len(runs.methods))
    share = f", {100 * saved:.0f} % fewer than {plural(judged, 'seed')} for all" if saved else ""
    cost = f"{plural(trained, 'run')} were trained{share}."
    if verdict.is_decided:
        return f"All methods are decided after {plural(judged, 'seed')}: {cost}"
    undecided = [pair for pair in verdict.pairs if pair.answer == "undecided"]
    names = [pair.method for pair in undecided]
    if not names:
        best = _named(verdict.answers.best)
        return f"After {plural(judged, 'seed')}, the best of {best} is undecided: {cost}"
    verb = "is" if len(names) == 1 else "are"
    text = f"After {plural(judged, 'seed')}, {_named(names)} {verb} undecided: {cost}"
    needed = {pair.method: pair.seeds_needed for pair in undecided if pair.seeds_needed}
    more = max(needed.values(), default=0) - judged
    if more <= 0:
        return text
    seconds = more * sum(run_seconds(runs.of(method)[-1]) for method in [verdict.baseline, *needed])
    which = "it" if len(names) == 1 else "them"
    if len(needed) < len(names):
        which = f"{len(needed)} of them"
    return (
        f"{text} About {plural(more, 'more seed')} would probably decide {which} "
        f"(about {duration(seconds)} of training on one core)."
    )


def _named(names: "list[str] | tuple[str, ...]") -> str:
    shown = list(names)
    if len(shown) > _NAMED:
        shown = [*shown[: _NAMED - 1], f"{len(shown) - _NAMED + 1} more"]
    return joined(shown)
