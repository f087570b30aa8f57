"""What the metrics of runs reveal about their methods: learnt nothing, diverged, same as another.

A run has learnt nothing, or has collapsed, if the metric that is judged is no better than that of
predictions that ignore the sample, at the level that is judged.

Each outcome is a sentence below the table and, where the verdict does not say it already, a few
words beside the method's row.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal

from unskew.stats.metric import Metric

if TYPE_CHECKING:
    from unskew.runs.run import FinalBy, Run

_TOLERANCE = 0.005
"""A share this little above that of predictions that ignore the sample is no better."""

_LAST = 5
"""How many of the last rounds are looked at for divergence; one alone depends on its cohort."""

_GROWTH, _ABOVE_START = 10.0, 2.0
"""Training diverged if the loss is this many times its minimum and this many times its first."""

_COMPARED = ("round", "train_loss", "global", "local", "personal", "kept_model")
"""The values of a round that are equal for methods that train the same models."""


@dataclass(frozen=True)
class Outcome:
    """Something that a reader of the results should know about a method."""

    sentence: str
    words: str = ""
    is_failure: bool = False
    """Whether it is about runs that failed."""


def outcomes_of(
    runs: "Sequence[Run]", level: str, metric: Metric, final: "FinalBy" = "mean"
) -> list[Outcome]:
    """Return what the runs of one method, one per seed, show about it."""
    failed = failures_of(runs, level, metric, final)
    failures = list(failed.values())
    found = [
        _outcome([each for each in failures if each.kind == kind], len(runs))
        for kind in _ADVICE
        if any(each.kind == kind for each in failures)
    ]
    others = [run for run in runs if run.seed not in failed] if final == "mean" else []
    unstable = [counts for run in others if (counts := _late_collapses(run, level, metric))[0]]
    return [*found, _instability(unstable, len(runs), metric)] if unstable else found


def failures_of(
    runs: "Sequence[Run]", level: str, metric: Metric, final: "FinalBy" = "mean"
) -> "dict[int, Failure]":
    """Return how the runs of one method failed, by seed, for the seeds in which they did."""
    found = {
        run.seed: failure_of(run, level, metric, run.final_value(level, metric.name, final))
        for run in runs
    }
    return {seed: failure for seed, failure in found.items() if failure is not None}


@dataclass(frozen=True)
class Failure:
    """How the training of a run failed."""

    kind: Literal["diverged", "collapsed"]
    reason: str


_ADVICE: dict[str, str] = {
    "collapsed": "look at unskew data check, or try another lr",
    "diverged": "try a smaller lr, or clip, or scale the features",
}


def failure_of(run: "Run", level: str, metric: Metric, value: float) -> Failure | None:
    """Return how a run failed, if it did; ``value`` is the one by which it is judged.

    It diverged if no client's training ended with finite numbers, or if the training loss rose to
    ten times its minimum and twice its first value; the median of the last five rounds counts. It
    collapsed if its accuracy is at most half a percentage point above that of always predicting the
    most frequent class or, judged by another metric, above that metric's value without skill.
    """
    if reason := _diverged(run):
        return Failure("diverged", reason)
    no_skill = _no_skill(run, level, metric)
    if no_skill is None or math.isnan(value) or not _is_at_chance(metric, value, no_skill):
        return None
    return Failure("collapsed", f"no better than {_guess(metric)} ({metric.text(no_skill)})")


def _outcome(failures: Sequence[Failure], seeds: int) -> Outcome:
    """Return what failures of the same kind mean for a method."""
    kind, reason = failures[0].kind, failures[0].reason
    words = f"{kind} in {len(failures)} of {seeds} seeds" if seeds > 1 else kind
    return Outcome(f"{words}: {reason}; {_ADVICE[kind]}", words, is_failure=True)


def _late_collapses(run: "Run", level: str, metric: Metric) -> tuple[int, int]:
    """Return how many of the evaluations that are judged are at chance again, and their number.

    Those before the metric was first above chance do not count: the run had not learnt yet.
    """
    no_skill, values = _no_skill(run, level, metric), run.final_values(level, metric.name)
    if no_skill is None:
        return 0, len(values)
    curve = run.curve(level, metric.name)[1]
    at_chance = [_is_at_chance(metric, value, no_skill) for value in curve]
    learnt = at_chance.index(False) if False in at_chance else len(at_chance)
    return sum(at_chance[max(learnt, len(at_chance) - len(values)) :]), len(values)


def _instability(counts: Sequence[tuple[int, int]], seeds: int, metric: Metric) -> Outcome:
    """Return that some, but not all, of the evaluations that are averaged had collapsed."""
    words = f"unstable in {len(counts)} of {seeds} seeds" if seeds > 1 else "unstable"
    at_chance, judged = max(counts)
    return Outcome(
        f"{words}: up to {at_chance} of the {judged} evaluations that are averaged are no better "
        f"than {_guess(metric)}; {_ADVICE['diverged']}",
        words,
    )


def identity(runs: "Sequence[Run]", others: "Sequence[Run]") -> Outcome | None:
    """Return that the runs of two methods are the same in all rounds of all seeds, if so."""
    pairs = {run.seed: run for run in others}
    if not runs or {run.seed for run in runs} != set(pairs):
        return None
    if not all(_same_rounds(run, pairs[run.seed]) for run in runs):
        return None
    other, reason = others[0].method, runs[0].metadata.get("no_effect")
    because = f", because {reason}" if isinstance(reason, str) else " in every round"
    return Outcome(f"identical to {other}{because}")


def _no_skill(run: "Run", level: str, metric: Metric) -> float | None:
    """Return the metric's value for predictions that ignore the sample; None if it is not known.

    For the accuracy it is that of always predicting the class that is best on the level's tests.
    """
    if metric.name != "accuracy":
        return metric.no_skill
    tests = "global" if level == "global" else "local"
    share = run.metadata.get("data", {}).get("majority", {}).get(tests)
    return float(share) if isinstance(share, int | float) and share < 1 else None


def _is_at_chance(metric: Metric, value: float, no_skill: float) -> bool:
    return metric.sign * (value - no_skill) <= _TOLERANCE


def _guess(metric: Metric) -> str:
    """Return in words the predictions that ignore the sample."""
    if metric.name == "accuracy":
        return "always predicting the most frequent class"
    return f"the {metric.name} of a prediction that ignores the sample"


def _diverged(run: "Run") -> str:
    """Return how training diverged; empty if it did not."""
    rows = run.task_metrics
    losses = [row["train_loss"] for row in rows if row.get("train_loss") is not None]
    last = [row["train_loss"] for row in rows[-_LAST:] if row.get("train_loss") is not None]
    if not last:
        failed = any("kept_model" in row for row in rows[-_LAST:])
        return "no client's training ended with finite numbers" if failed else ""
    final, least = median(last), min(losses)
    if final <= max(_GROWTH * least, _ABOVE_START * losses[0]):
        return ""
    return f"the training loss rose from {least:.3g} to {final:.3g}"


def _same_rounds(run: "Run", other: "Run") -> bool:
    rows, others = run.task_metrics, other.task_metrics
    if not rows or len(rows) != len(others) or run.is_untrained:
        return False
    # The last rounds first: methods differ most there, so most comparisons end with one round.
    pairs = zip(reversed(rows), reversed(others), strict=True)
    return all(row.get(key) == o.get(key) for row, o in pairs for key in _COMPARED)
