"""What a search found: every trial's figure, and the best of them."""

import math
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from unskew.experiments.tuning.plan import SHARE, Plan
from unskew.experiments.tuning.trials import Trial
from unskew.methods.common.base import Method
from unskew.runs.run import Run
from unskew.stats.metric import Metric
from unskew.utils.jsonable import to_jsonable

_LEVELS = {"global": "global", "global on local tests": "local", "personal": "personal"}


def level_of(method: Method) -> str:
    """Return the level a method is judged on: the one it is meant for."""
    return _LEVELS[method.about.level]


@dataclass(frozen=True, eq=False)
class Tried:
    """A trial, its figure on the validation part (NaN without one), and why it was refused."""

    trial: Trial
    metric: Metric
    value: float
    refused: str | None = None

    @staticmethod
    def of(trial: Trial, run: Run, level: str) -> "Tried":
        """Read the figure of a trial that was played: its mean over the second half.

        Under skew the accuracy jumps from round to round, and a single one would make the choice
        a lottery.
        """
        rounds, values = run.curve(level, run.metric.name)
        late = [value for t, value in zip(rounds, values, strict=True) if 2 * t > rounds[-1]]
        value = fmean(late) if late else math.nan
        return Tried(trial, run.metric, value, run.facts.get("refused"))

    @property
    def rank(self) -> float:
        """A number that is larger for a better trial."""
        if math.isnan(self.value):
            return -math.inf
        return self.value if self.metric.more_is_better else -self.value


def best_of(tried: list[Tried]) -> Tried:
    """Return the best trial; of several that are as good, the one that came first."""
    return max(tried, key=lambda each: each.rank)


@dataclass(frozen=True, eq=False)
class Choice:
    """The trials of one method, ``asked`` being how it was spelled."""

    asked: str
    level: str
    plan: Plan
    tried: list[Tried]

    @property
    def chosen(self) -> Tried:
        """The trial whose setting is used."""
        return best_of(self.tried)

    def facts(self) -> dict[str, Any]:
        """Return all there is to know of the search as plain values, for ``run.json``."""
        facts: dict[str, Any] = to_jsonable(
            {
                "asked": self.asked,
                "chosen": _facts(self.chosen),
                "level": self.level,
                "figure": self.chosen.metric.name,
                "share": SHARE,
                **self.plan.model_dump(),
                "tried": [_facts(each) for each in self.tried],
            }
        )
        return facts


def _facts(tried: Tried) -> dict[str, Any]:
    facts = {"method": tried.trial.name, "lr": tried.trial.lr, "value": tried.value}
    return facts if tried.refused is None else {**facts, "refused": tried.refused}
