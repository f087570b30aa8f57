"""The result of a search: the metric of every trial, and the best trial."""

import math
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from unskew.composition.method import Method
from unskew.experiments.tuning.plan import SHARE, SearchPlan
from unskew.experiments.tuning.trials import Trial
from unskew.runs.run import Run
from unskew.stats.metric import POOLED, Metric
from unskew.utils.jsonable import to_jsonable

_LEVELS = {"global": "global", "global on local tests": "local", "personal": "personal"}


def level_of(method: Method) -> str:
    """Return the level of evaluation a method is judged on: the one it is designed for."""
    return _LEVELS[method.about.level]


@dataclass(frozen=True, eq=False)
class TrialResult:
    """A trial and its value on the validation part.

    The value is NaN if there is none; ``skipped`` then gives the reason if the method did not
    support the network.
    """

    trial: Trial
    metric: Metric
    value: float
    skipped: str | None = None

    @staticmethod
    def of(trial: Trial, run: Run, level: str) -> "TrialResult":
        """Read the value of a finished trial: the mean over the second half of its rounds.

        Under skew the accuracy jumps from round to round, so a single round would make the choice
        depend on noise.
        """
        name = run.metric.name
        if level == "global":  # the validation parts of all clients are one common test set
            name = name.removeprefix(POOLED)
        rounds, values = run.curve(level, name)
        late = [value for t, value in zip(rounds, values, strict=True) if 2 * t > rounds[-1]]
        value = fmean(late) if late else math.nan
        return TrialResult(trial, run.metric, value, run.facts.get("skipped"))

    @property
    def score(self) -> float:
        """A number that is larger for a better trial."""
        if math.isnan(self.value):
            return -math.inf
        return self.metric.sign * self.value


def best_of(results: list[TrialResult]) -> TrialResult:
    """Return the best trial; of several that are equally good, the first."""
    return max(results, key=lambda result: result.score)


@dataclass(frozen=True, eq=False)
class Choice:
    """The trials of one method; ``requested`` is the method's spec before the search."""

    requested: str
    level: str
    plan: SearchPlan
    results: list[TrialResult]

    @property
    def chosen(self) -> TrialResult:
        """The trial whose settings are used."""
        return best_of(self.results)

    def facts(self) -> dict[str, Any]:
        """Return the whole search as plain values, for ``run.json``."""
        facts: dict[str, Any] = to_jsonable(
            {
                "requested": self.requested,
                "chosen": _facts(self.chosen),
                "level": self.level,
                "metric": self.chosen.metric.name,
                "share": SHARE,
                **self.plan.model_dump(),
                "results": [_facts(result) for result in self.results],
            }
        )
        return facts


def _facts(result: TrialResult) -> dict[str, Any]:
    facts = {"method": result.trial.name, "lr": result.trial.lr, "value": result.value}
    return facts if result.skipped is None else {**facts, "skipped": result.skipped}
