"""Which method leads, and whether its lead is significant, in words."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from unskew.stats.metric import Metric
from unskew.stats.paired import ALPHA, BySeed, Difference, compare_with_others
from unskew.utils.html import html_block, html_line, html_table
from unskew.utils.wording import joined

TEST = (
    f"paired t-test over seeds against the leader, p corrected for the number of methods "
    f"(Bonferroni), level {ALPHA:g}"
)
"""The statistical test of a lead, for readers."""

_MANY_SEEDS = 10
"""With this many seeds, the text does not suggest running more of them."""


@dataclass(frozen=True)
class Verdict:
    """The method with the best mean, and its differences to the other methods.

    ``differences`` are those between the leader and every other method, in the order of their
    means; they are positive where the leader is better. ``level`` is the level of evaluation that
    is compared.
    """

    metric: Metric
    leader: str
    seeds: int
    differences: tuple[Difference, ...]
    level: str = "global"

    @property
    def not_significant(self) -> list[str]:
        """The methods whose difference from the leader is not significant."""
        return [each.second for each in self.differences if not each.is_significant]

    @property
    def is_significant(self) -> bool:
        """Whether the leader is significantly better than every other method."""
        return bool(self.differences) and not self.not_significant

    def __str__(self) -> str:
        if not self.differences:
            return f"{self.leader} is the only method: there is nothing to compare it with."
        prefix = f"By {tested_on(self.level)}: " if self.level == "local" else ""
        return prefix + self._sentence()

    def __repr__(self) -> str:
        return f"Verdict({str(self)!r})"

    def _repr_html_(self) -> str:
        columns = ["method", f"difference in {self.metric.name}", "95 % interval", "p", "verdict"]
        rows = [[self.leader, "", "", "", "leads"], *map(self._cells, self.differences)]
        return html_block(
            html_line(str(self)),
            html_table(columns, rows, bold=self.leader, text_columns=(0, 4)),
            html_line(f"Test: {TEST}.", soft=True) if self.differences else "",
        )

    def _cells(self, difference: Difference) -> list[str]:
        """Return the cells of a method, whose differences from the leader are negative if worse."""
        sign = -1.0 if self.metric.more_is_better else 1.0
        scale, form = (100 * sign, "+.2f") if self.metric.more_is_better else (sign, "+.4g")
        ends = sorted((scale * difference.low, scale * difference.high))
        unknown = math.isnan(difference.p)
        return [
            difference.second,
            format(scale * difference.mean, form),
            "-" if unknown else f"{ends[0]:{form}} to {ends[1]:{form}}",
            "-" if unknown else _p(difference.p).removeprefix("= "),
            self.note(difference.second),
        ]

    def _sentence(self) -> str:
        tied = [difference.second for difference in self.differences if difference.is_tie]
        leaders = joined([self.leader, *tied])
        others = [difference for difference in self.differences if not difference.is_tie]
        if not others:
            return f"{leaders} are equivalent: the same {self.metric.name} with every seed."
        leads = "are equivalent and lead" if tied else "leads"
        start = f"{leaders} {leads} by {self._amount(others[0].mean)} over {others[0].second}"
        if any(math.isnan(difference.p) for difference in self.differences):
            return (
                f"{start}, but one seed cannot show whether a lead is significant; use at least "
                "three."
            )
        significant = [difference.second for difference in others if difference.is_significant]
        if len(significant) == len(others):
            p = max(difference.p for difference in others)
            return f"{start}, and the lead is significant (p {_p(p)})."
        more = " More seeds may show a difference." if self.seeds < _MANY_SEEDS else ""
        if not significant:
            pair = len(self.differences) == 1
            other, smallest = ("it", "") if pair else ("any other method", "the smallest ")
            p = min(difference.p for difference in self.differences)
            return (
                f"{start}, but the lead is not significant: {self.seeds} seeds do not distinguish "
                f"the leader from {other} ({smallest}p {_p(p)}).{more}"
            )
        return (
            f"{self.leader} leads and is significantly better than {joined(significant)}; its "
            f"difference from {joined(self.not_significant)} is not significant.{more}"
        )

    def note(self, method: str) -> str:
        """Return in a word or two how a method compares with the leader."""
        if method == self.leader:
            return "leads"
        for difference in self.differences:
            if difference.second == method:
                if difference.is_tie:
                    return "equivalent"
                if math.isnan(difference.p):
                    return "one seed"
                return "significantly worse" if difference.is_significant else "not significant"
        return "-"

    def against(self, method: str) -> str:
        """Return the difference of a method's mean from the leader's, and its note."""
        note = self.note(method)
        for difference in self.differences:
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
    found = compare_with_others(ranked[0], {method: signed[method] for method in ranked})
    return Verdict(metric, ranked[0], len(signed[ranked[0]]), tuple(found), level)


def tested_on(level: str) -> str:
    """Return which test samples a level of evaluation is measured on, for readers."""
    return "the common test" if level == "global" else "the clients' own tests, on average"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.2g}"
