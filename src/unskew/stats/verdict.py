"""Which method leads, and whether its lead is more than noise, in words."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from unskew.stats.metric import Metric
from unskew.stats.paired import LEVEL, BySeed, Difference, lead

TEST = (
    f"paired t-test over seeds against the leader, p corrected for the number of methods "
    f"(Bonferroni), level {LEVEL:g}"
)
"""How a lead is judged, for readers."""

_MANY = 10
"""With so many seeds, a lead that does not show is hardly worth more of them."""


@dataclass(frozen=True)
class Verdict:
    """The leader by mean figure, and how far the others are behind it.

    ``behind`` are the leader's differences to all others, in the order of their means; its sign
    is such that positive means that the leader is better. ``test`` is the level they are judged on.
    """

    metric: Metric
    leader: str
    seeds: int
    behind: tuple[Difference, ...]
    test: str = "global"

    @property
    def level(self) -> list[str]:
        """The methods whose distance from the leader is within noise."""
        return [difference.second for difference in self.behind if not difference.is_significant]

    @property
    def is_significant(self) -> bool:
        """Whether the leader is really ahead of everybody else."""
        return bool(self.behind) and not self.level

    def __str__(self) -> str:
        if not self.behind:
            return f"{self.leader} stands alone: there is nothing to compare it with."
        judged = f"By {tested_on(self.test)}: " if self.test == "local" else ""
        return judged + self._sentence()

    def _sentence(self) -> str:
        if all(difference.is_tie for difference in self.behind):
            names = _joined([self.leader, *(difference.second for difference in self.behind)])
            return f"{names} are level: the same figure with every seed."
        tied = [difference.second for difference in self.behind if difference.is_tie]
        first = next(difference for difference in self.behind if not difference.is_tie)
        unknown = any(math.isnan(d.p) for d in self.behind)
        leads = "are level and lead" if tied else "leads"
        leaders = _joined([self.leader, *tied])
        start = f"{leaders} {leads} by {self._amount(first.mean)} over {first.second}"
        if unknown:
            return f"{start}, but one seed cannot tell a lead from noise; give at least three."
        if self.is_significant:
            return f"{start}, and its lead is real (p = {_p(max(d.p for d in self.behind))})."
        more = " More seeds may tell." if self.seeds < _MANY else ""
        others = [method for method in self.level if method not in tied]
        if tied and not others:
            p = _p(max(d.p for d in self.behind if not d.is_tie))
            return f"{start}, and their lead is real (p = {p})."
        if len(self.level) == len(self.behind):
            other = "it" if len(self.behind) == 1 else "any other"
            least = "" if len(self.behind) == 1 else "the smallest "
            p = _p(min(d.p for d in self.behind))
            return (
                f"{start}, but that is within noise: {self.seeds} seeds do not tell the leader "
                f"from {other} ({least}p = {p}).{more}"
            )
        ahead = [difference.second for difference in self.behind if difference.is_significant]
        return (
            f"{self.leader} leads and is really ahead of {_joined(ahead)}, but its distance from "
            f"{_joined(self.level)} is within noise.{more}"
        )

    def note(self, method: str) -> str:
        """Say in a word or two how a method stands to the leader."""
        if method == self.leader:
            return "leads"
        for difference in self.behind:
            if difference.second == method:
                if difference.is_tie:
                    return "the same"
                if math.isnan(difference.p):
                    return "one seed"
                return "behind" if difference.is_significant else "within noise"
        return "-"

    def against(self, method: str) -> str:
        """Say how a method's mean differs from the leader's, and how it stands."""
        note = self.note(method)
        for difference in self.behind:
            if difference.second == method:
                if self.metric.more_is_better:
                    return f"{-100 * difference.mean:+.2f} ({note})"
                return f"{difference.mean:+.4g} ({note})"
        return note

    def _amount(self, value: float) -> str:
        return f"{100 * value:.2f} points" if self.metric.more_is_better else f"{value:.4g}"


def judge(scores: Mapping[str, BySeed], metric: Metric, level: str = "global") -> Verdict | None:
    """Compare methods by their scores per seed; None if no method was measured with every seed.

    ``level`` is the level of evaluation that the scores come from.
    """
    sign = 1.0 if metric.more_is_better else -1.0
    signed = {
        method: {seed: sign * score for seed, score in by_seed.items()}
        for method, by_seed in scores.items()
    }
    means = {method: sum(by_seed.values()) / len(by_seed) for method, by_seed in signed.items()}
    ranked = sorted(
        (method for method in means if not math.isnan(means[method])), key=lambda m: -means[m]
    )
    if not ranked:
        return None
    behind = tuple(lead(ranked[0], {method: signed[method] for method in ranked}))
    return Verdict(metric, ranked[0], len(signed[ranked[0]]), behind, level)


def tested_on(level: str) -> str:
    """Return which test samples a level of evaluation is measured on, for readers."""
    return "the common test" if level == "global" else "the clients' own tests, on average"


def _p(value: float) -> str:
    return "under 0.001" if value < 0.001 else f"{value:.2g}"


def _joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
