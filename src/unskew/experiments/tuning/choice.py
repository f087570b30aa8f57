"""The results of a search: the values of every setting, and the setting that is chosen."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from unskew.composition.method import Method
from unskew.experiments.tuning.plan import SHARE, SearchPlan
from unskew.experiments.tuning.space import Params, Trial
from unskew.runs.outcomes import failure_of
from unskew.runs.run import Run
from unskew.stats.metric import POOLED, Metric
from unskew.utils.jsonable import to_jsonable

_LEVELS = {"global": "global", "global on local tests": "local", "personal": "personal"}


def level_of(method: Method, plan: SearchPlan) -> str:
    """Return the level of evaluation a method is judged on: by default the one it is meant for."""
    return plan.level or _LEVELS[method.about.level]


@dataclass(frozen=True, eq=False)
class Measured:
    """What one run of a setting showed on the validation part."""

    metric: Metric
    value: float
    failure: str = ""
    """How the run diverged or collapsed; empty if it did not."""
    skipped: str = ""
    """Why the setting was not trained, if the method does not support the network."""
    level: str = "global"
    """The level of evaluation that the value is from."""

    @property
    def score(self) -> float:
        """A number that is larger for a better value."""
        return -math.inf if math.isnan(self.value) else self.metric.sign * self.value

    @staticmethod
    def of(run: Run, level: str, rounds: int, *, is_last: bool) -> "Measured":
        """Read the value after so many rounds: the mean over the second half of them.

        Under skew the accuracy jumps from round to round, so a single round would make the choice
        depend on noise. The run may have more rounds. Only a run with all of its rounds can count
        as collapsed: before, it may merely have learnt nothing yet. A run without a trained model
        at the level is judged by its personal ones.
        """
        level = level if run.has_model(level) else "personal"
        rows = [row for row in run.metrics if row["round"] <= rounds or row["stage"] != "task"]
        run = replace(run, metrics=rows)
        name = run.metric.name
        if level == "global":  # the validation parts of all clients are one common test set
            name = name.removeprefix(POOLED)
        value, skipped = _late_mean(run, level, name), run.metadata.get("skipped", "")
        failure = failure_of(run, level, run.metric, value if is_last else math.nan)
        kind = "skipped" if skipped else "no value" if math.isnan(value) else ""
        failed = kind if failure is None else failure.kind
        return Measured(run.metric, value, failed, skipped, level)


def _late_mean(run: Run, level: str, metric: str) -> float:
    """Return the mean of a metric over the second half of a run's rounds."""
    rounds, values = run.curve(level, metric)
    late = [value for t, value in zip(rounds, values, strict=True) if 2 * t > rounds[-1]]
    return fmean(late) if late else math.nan


@dataclass(eq=False)
class TrialResult:
    """A setting and what its runs have shown so far."""

    number: int
    trial: Trial
    params: Params
    rounds: int = 0
    """The rounds that it was trained with the first seed."""
    measured: list[Measured] = field(default_factory=list)
    """What was measured with each seed, after these rounds."""
    first: Measured | None = None
    """What was measured after the first rounds, by which a setting is trained further."""

    @property
    def value(self) -> float:
        """The mean over seeds; NaN if a seed has none."""
        return fmean(each.value for each in self.measured) if self.measured else math.nan

    @property
    def failures(self) -> list[str]:
        """How the setting failed, once per seed in which it did."""
        return [each.failure for each in self.measured if each.failure]

    @property
    def has_diverged(self) -> bool:
        """Whether it cannot recover with more rounds, as a collapsed one may."""
        return any(failure != "collapsed" for failure in self.failures)

    def is_sound(self, seeds: int) -> bool:
        """Whether it was trained with all of so many seeds and failed in none."""
        return len(self.measured) == seeds and not self.failures

    @property
    def is_unstable(self) -> bool:
        """Whether it diverged or failed with a later seed alone, as with too large steps.

        One that collapsed with the first seed as well has merely not learnt.
        """
        first, *others = (bool(each.failure) for each in self.measured)
        return self.has_diverged or (any(others) and not first)

    @property
    def score(self) -> float:
        """A number that is larger for a better setting."""
        return fmean(each.score for each in self.measured) if self.measured else -math.inf

    def to_dict(self) -> dict[str, Any]:
        """Return the setting and its values as plain values."""
        values: dict[str, Any] = {
            "method": self.trial.name,
            "lr": self.trial.lr,
            "clip": self.trial.clip,
            "rounds": self.rounds,
            "value": self.value,
            "values": [each.value for each in self.measured],
            "failures": self.failures,
        }
        skipped = next((each.skipped for each in self.measured if each.skipped), None)
        return values if skipped is None else {**values, "skipped": skipped}


@dataclass(frozen=True, eq=False)
class Choice:
    """The search of one method; ``requested`` is the method's spec before it."""

    requested: str
    given: str
    """The same spec with the options that were given at their default, which stayed as well."""
    level: str
    plan: SearchPlan
    results: list[TrialResult]
    spent: int
    """The rounds of training that the search took."""
    lr_range: tuple[float, float]
    """The learning rates that were searched, after extensions."""
    edges: dict[str, str]
    """What is chosen at an edge of its range."""

    @property
    def chosen(self) -> TrialResult:
        """The setting that is used."""
        return best_of(self.results, self.plan)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole search as plain values, for ``run.json``."""
        plan = self.plan
        values: dict[str, Any] = to_jsonable(
            {
                "requested": self.requested,
                "given": self.given,
                "chosen": self.chosen.to_dict(),
                "edges": self.edges,
                "level": self.level,
                "metric": self.chosen.measured[0].metric.name,
                "share": SHARE,
                "lr": list(plan.lr),
                "searched_lr": list(self.lr_range),
                "clips": list(plan.clips),
                "budget": plan.budget,
                "spent": self.spent,
                "rounds": plan.rounds,
                "seeds": list(plan.seeds),
                "results": [result.to_dict() for result in self.results],
            }
        )
        return values


def best_of(results: Sequence[TrialResult], plan: SearchPlan) -> TrialResult:
    """Return the best setting; of several that are equally good, the first.

    Those that were trained with all seeds and failed in none come first. If there is none, those
    with all rounds do, and of these the ones that did not fail yet or had all seeds. The others
    come next, at a safe learning rate if possible, and settings that diverged last.
    """
    seeds = len(plan.seeds)
    limit = safe_lr(results, seeds)

    def place(result: TrialResult) -> tuple[bool, bool, bool, bool, int, bool, float]:
        is_complete = result.rounds == plan.rounds
        return (
            result.is_sound(seeds),
            not result.has_diverged,
            is_complete,
            not result.failures,
            len(result.measured),
            is_complete or result.trial.lr < limit,
            result.score,
        )

    return max(results, key=place)


def safe_lr(results: Sequence[TrialResult], seeds: int) -> float:
    """Return half the smallest learning rate at which a setting was unstable.

    It is infinite if none was, and once a setting can be chosen: then others may be risked.
    """
    if any(result.is_sound(seeds) for result in results):
        return math.inf
    return min((each.trial.lr / 2 for each in results if each.is_unstable), default=math.inf)
