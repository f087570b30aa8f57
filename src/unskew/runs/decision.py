"""What a comparison that adds seeds has decided, in words, and what the rest would cost."""

from typing import TYPE_CHECKING

from unskew.utils.wording import duration, joined, plural

if TYPE_CHECKING:
    from unskew.runs.run import Run
    from unskew.runs.runs import Runs

_NAMED = 3
"""At most this many open methods are named."""


def run_seconds(run: "Run") -> float:
    """Return how long a run was trained and evaluated."""
    return float(sum(row.get("seconds", 0.0) for row in run.metrics))


def decision_text(runs: "Runs") -> str:
    """Return one or two sentences: what is decided after how many seeds, and what is open.

    It is empty for runs whose number of seeds was fixed.
    """
    verdict = runs.verdict()
    if runs.waves is None or verdict is None:
        return ""
    judged, trained = runs.waves.judged(verdict.seeds), len(runs)
    saved = 1 - trained / (judged * len(runs.methods))
    share = f", {100 * saved:.0f} % fewer than {plural(judged, 'seed')} for all" if saved else ""
    cost = f"{plural(trained, 'run')} were trained{share}."
    undecided = [pair for pair in verdict.pairs if pair.answer == "undecided"]
    if not undecided:
        return f"All methods are decided after {plural(judged, 'seed')}: {cost}"
    names = [pair.method for pair in undecided]
    shown = names if len(names) <= _NAMED else [*names[: _NAMED - 1], f"{len(names) - 2} more"]
    text = f"After {plural(judged, 'seed')}, {joined(shown)} {_are(len(names))} open: {cost}"
    known = [pair.seeds_needed for pair in undecided if pair.seeds_needed]
    if not known:
        return text
    more = max(known) - judged
    if more <= 0:
        return text
    seconds = more * sum(run_seconds(runs.of(method)[-1]) for method in [verdict.baseline, *names])
    return (
        f"{text} About {plural(more, 'more seed')} would probably decide "
        f"{'them' if len(names) > 1 else 'it'} (about {duration(seconds)} of training)."
    )


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
