"""The answers about the methods of a comparison, in words."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from unskew.stats.judging import (
    ERROR_RATE,
    MARGIN,
    Answers,
    BySeed,
    Pair,
    by_position,
    default_baseline,
    judge,
)
from unskew.stats.metric import Metric
from unskew.stats.sequential import judge_waves
from unskew.stats.waves import Waves
from unskew.utils.html import html_block, html_line, html_table
from unskew.utils.wording import joined, plural

TEST = (
    "paired differences to the baseline over seeds, variances pooled over methods as far as they "
    f"agree, Holm's correction, family-wise error rate {ERROR_RATE:g}; intervals are simultaneous"
)
"""The statistical test, for readers."""

_NAMED = 3
"""At most this many methods are named in a sentence."""


@dataclass(frozen=True)
class Verdict:
    """Each method against the baseline, and the methods that may be the best.

    ``means`` are the means over seeds of the number that is judged, the best first. ``answers``
    has its units: percentage points of a share such as accuracy, or those of the metric, where a
    positive difference is better. ``level`` is the level of evaluation that is compared.
    ``next_methods`` are the methods that the next wave of a comparison that adds seeds trains, and
    ``is_decided`` says whether all that such a comparison asks is known. ``failed`` says which
    methods diverged or collapsed, and with how many seeds: their means mix results with failures.
    ``remark`` is a sentence about what differs between the runs besides their methods.
    """

    metric: Metric
    answers: Answers
    means: Mapping[str, float]
    seeds: int
    level: str = "global"
    next_methods: tuple[str, ...] = ()
    is_decided: bool = False
    failed: Mapping[str, str] = field(default_factory=dict)
    remark: str = ""

    @property
    def leader(self) -> str:
        """The method with the best mean."""
        return next(iter(self.means))

    @property
    def baseline(self) -> str:
        """The method that all others are compared with."""
        return self.answers.baseline

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """One pair per rival of the baseline."""
        return self.answers.pairs

    @property
    def is_significant(self) -> bool:
        """Whether the leader is significantly better than every other method.

        The set of the best is one-sided, so it may be sure where a pair with the baseline is not.
        """
        answers = {p.answer for p in self.pairs if self.leader in (self.baseline, p.method)}
        alone = len(self.means) > 1 and self.answers.best == (self.leader,)
        return alone and not answers & {"equivalent", "undecided"}

    def __str__(self) -> str:
        if not self.pairs:
            return f"{self.leader} is the only method: there is nothing to compare it with."
        models = "personal models on " if self.level == "personal" else ""
        where = f"By {models}{tested_on(self.level, self.metric)}: "
        return ("" if self.level == "global" else where) + self.sentence

    @property
    def sentence(self) -> str:
        """The verdict without its level, for a place that names it."""
        remark = f" {self.remark}" if self.remark else ""
        return f"{self._against_baseline()} {self._best()}{self._failed()}{remark}"

    def __repr__(self) -> str:
        return f"Verdict({str(self)!r})"

    def _repr_html_(self) -> str:
        columns = ["method", f"difference in {self.metric.name}", "95 % interval", "p", "answer"]
        ranked = sorted(self.pairs, key=lambda pair: -pair.difference)
        rows = [[self.baseline, "", "", "", "baseline"], *map(self._cells, ranked)]
        return html_block(
            html_line(str(self)),
            html_table(columns, rows, bold=self.leader, text_columns=(0, 4)),
            html_line(f"Test: {TEST}.", soft=True) if self.pairs else "",
        )

    def note(self, method: str) -> str:
        """Return in a few words how a method compares with the baseline."""
        if method == self.baseline:
            return "baseline"
        pair = next((pair for pair in self.pairs if pair.method == method), None)
        if pair is None or math.isnan(pair.difference):
            return "-"
        if pair.is_identical:
            return "identical"
        if pair.answer != "undecided":
            return pair.answer
        if pair.seeds < 2:
            return "one seed"
        more = f", ~{pair.seeds_needed} seeds" if pair.seeds_needed else ""
        return f"undecided{more}"

    def against(self, method: str) -> str:
        """Return the difference of a method's mean from the baseline's, and its note."""
        note = self.note(method)
        pair = next((pair for pair in self.pairs if pair.method == method), None)
        if pair is None or math.isnan(pair.difference):
            return note
        return f"{self.signed(pair.difference)} ({note})"

    def signed(self, difference: float) -> str:
        """Format a difference in the metric: positive is better, except for errors and losses."""
        value = self.metric.sign * difference + 0.0  # never -0
        return f"{value:+.2f}" if self.metric.is_share else f"{value:+.4g}"

    def interval(self, pair: Pair) -> str:
        """Format the interval of a pair's difference."""
        ends = (pair.low, pair.high) if self.metric.more_is_better else (pair.high, pair.low)
        if math.isnan(pair.low):
            return "-"
        return f"{self.signed(ends[0])} to {self.signed(ends[1])}"

    def _cells(self, pair: Pair) -> list[str]:
        known = not math.isnan(pair.difference)
        return [
            pair.method,
            self.signed(pair.difference) if known else "-",
            self.interval(pair),
            "-" if math.isnan(pair.p) else p_text(pair.p).removeprefix("= "),
            self.note(pair.method),
        ]

    def _failed(self) -> str:
        texts = [f"{method} {how}" for method, how in self.failed.items()]
        return f" Failed runs: {', '.join(texts)}." if texts else ""

    def _against_baseline(self) -> str:
        tested = [pair for pair in self.pairs if not math.isnan(pair.difference)]
        if tested and all(pair.is_identical for pair in tested):
            return f"All methods have the {self.metric.name} of {self.baseline} with every seed."
        if all(pair.seeds < 2 for pair in tested):
            return f"One seed cannot show how methods differ from {self.baseline}; use five."
        if len(tested) == 1:
            return self._only(tested[0])
        words = {
            "better": "significantly better",
            "worse": "significantly worse",
            "equivalent": f"equivalent within {self._amount(self.answers.margin)}",
            "identical": f"identical to {self.baseline}",
            "undecided": "undecided",
        }
        answers = ["identical" if pair.is_identical else pair.answer for pair in tested]
        parts = [f"{answers.count(a)} {word}" for a, word in words.items() if a in answers]
        text = f"Of {plural(len(tested), 'rival')} of {self.baseline}, {joined(parts)}"
        needed = [p.seeds_needed for p in tested if p.answer == "undecided" and p.seeds_needed]
        if needed:
            text += f" (the first after about {min(needed)} seeds)"
        return f"{text}."

    def _only(self, pair: Pair) -> str:
        what = {
            "better": "is significantly better than",
            "worse": "is significantly worse than",
            "equivalent": f"is equivalent (within {self._amount(self.answers.margin)}) to",
            "undecided": f"is not yet separated, after {plural(pair.seeds, 'seed')}, from",
        }[pair.answer]
        more = f"; about {pair.seeds_needed} seeds would decide" if pair.seeds_needed else ""
        p = "" if math.isnan(pair.p) else f", p {p_text(pair.p)}"
        return (
            f"{pair.method} {what} {self.baseline}: {self.signed(pair.difference)}"
            f" ({self.interval(pair)}{p}){more}."
        )

    def _best(self) -> str:
        best = self.answers.best
        mean = self.metric.text(self.means[self.leader])
        if len(best) == 1:
            if self.is_significant:
                return f"{self.leader} is the best, with {mean}."
            return f"{self.leader} leads with {mean}."
        if len(best) == len(self.means):
            return f"{self.leader} leads with {mean}, but any method may be the best."
        others = [method for method in best if method != self.leader]
        shown = others[:_NAMED] if len(others) <= _NAMED else others[: _NAMED - 1]
        rest = len(others) - len(shown)
        names = joined([*shown, f"{rest} more"] if rest else shown)
        return f"{self.leader} leads with {mean}; {names} may be as good or better."

    def _amount(self, value: float) -> str:
        if not self.metric.is_share:
            return f"{value:.3g}"
        return f"{value:g} point{'' if value == 1 else 's'}"


def judge_scores(
    scores: Mapping[str, BySeed],
    metric: Metric,
    level: str = "global",
    *,
    baseline: str | None = None,
    margin: float = MARGIN,
    waves: Waves | None = None,
) -> Verdict | None:
    """Compare methods by their scores per seed; None if none was measured with every seed.

    Methods without a score in one of their seeds (in waves: of the first wave) are not compared.
    ``level`` is the level of evaluation that the scores come from. ``margin`` is in percentage
    points; for a metric that is not a share of 1, in per cent of the baseline's. With
    ``waves``, seeds were added in waves, and every look is repeated.
    """
    first = {method: _first_wave(by_seed, waves) for method, by_seed in scores.items()}
    known = [method for method, wave in first.items() if wave and not math.isnan(sum(wave))]
    if not known:
        return None
    sign = metric.sign
    means = {
        method: fmean(score for score in scores[method].values() if not math.isnan(score))
        for method in known
    }
    chosen = baseline if baseline in known else default_baseline(known)
    scale = sign * (100.0 if metric.is_share else 1.0)
    signed = {m: {s: scale * score for s, score in scores[m].items()} for m in known}
    unit = 1.0 if metric.is_share else abs(fmean(first[chosen])) / 100
    values, next_methods, is_decided = by_position(signed), tuple[str, ...](), False
    gains = {method: sign * mean for method, mean in means.items()}
    if waves is None:
        found = judge(values, chosen, margin * unit)
    else:
        wave = judge_waves(values, waves.seeds, chosen, margin * unit, best=waves.best)
        found, next_methods, is_decided = wave.answers, wave.next_methods, wave.is_decided
        # Methods have different seeds, so their means differ by the effects of seeds too.
        gains = {chosen: 0.0} | {pair.method: pair.difference for pair in found.pairs}
    ranked = {method: means[method] for method in sorted(known, key=lambda m: -gains[m])}
    seeds = max(len(by_seed) for by_seed in scores.values())
    return Verdict(metric, found, ranked, seeds, level, next_methods, is_decided)


def _first_wave(scores: BySeed, waves: Waves | None) -> list[float]:
    """Return the scores of the first wave, or all of them.

    Which methods are compared, the baseline and its mean, to which a relative margin refers, must
    not change in later waves.
    """
    seeds = sorted(scores)[: None if waves is None else waves.seeds[0]]
    return [scores[seed] for seed in seeds]


def tested_on(level: str, metric: Metric) -> str:
    """Return which test samples a level of evaluation is measured on, for readers."""
    if level == "global":
        return "the common test"
    return f"the clients' own tests, {'all together' if metric.is_pooled else 'on average'}"


def p_text(value: float) -> str:
    """Format a p-value with its sign of equality."""
    return "< 0.001" if value < 0.001 else f"= {value:.2g}"
