"""Judging a paper's claims by differences over seeds, with the test of comparisons."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unskew.experiments.studies.measure_registry import measure_of
from unskew.experiments.studies.study import Claim, Scale, StudyFile, matches
from unskew.experiments.studies.values import Cells
from unskew.stats.judging import ERROR_RATE, MARGIN, by_position, judge_rivals

ClaimVerdict = Literal[
    "held",
    "not held",
    "smaller than the paper's",
    "identical",
    "undecided",
    "not testable at this scale",
]

_TARGET_MEASURES = ("rounds", "cost")
"""Measures that are NaN if the best rival's accuracy was never reached."""

_UNTESTABLE: ClaimVerdict = "not testable at this scale"

Cell = Callable[[str, str], Mapping[int, float]]
"""Returns the values of a case and a label, by seed."""


@dataclass(frozen=True)
class Difference:
    """The value of a claim's method minus that of a rival, positive if the method is better.

    ``low`` and ``high`` are the simultaneous interval of all rivals of the claim, and ``p`` is
    corrected for their number. All are NaN with fewer than two seeds.
    """

    second: str
    mean: float
    low: float
    high: float
    p: float
    is_equivalent: bool = False
    """Whether the difference was shown to be smaller than the claim's margin."""
    seeds_needed: int | None = None
    """The number of seeds that would probably decide the difference, if it is open."""

    @property
    def is_tie(self) -> bool:
        """Whether both have the same value with every seed."""
        return self.mean == self.low == self.high == 0

    @property
    def is_significant(self) -> bool:
        """Whether the difference is significantly different from zero."""
        return self.p < ERROR_RATE

    def excludes(self, value: float) -> bool:
        """Whether a value is outside the interval; False for NaN."""
        return value < self.low or value > self.high

    def is_smaller_than(self, value: float) -> bool:
        """Whether the interval excludes a difference that is larger, in its direction."""
        return self.high < value if value > 0 else self.low > value


@dataclass(frozen=True)
class JudgedClaim:
    """A claim, its verdict, and the differences that the verdict is based on.

    Differences are signed so that positive means better, for every measure. ``paper`` holds the
    paper's differences, NaN where it does not print the values.
    """

    claim: Claim
    verdict: ClaimVerdict
    reason: str
    differences: tuple[Difference, ...] = ()
    paper: tuple[float, ...] = ()

    def __str__(self) -> str:
        parts = [
            self._describe(difference, paper)
            for difference, paper in zip(self.differences, self.paper, strict=True)
        ]
        return "; ".join([*parts, self.reason] if self.reason else parts)

    def _describe(self, difference: Difference, paper: float) -> str:
        digits = measure_of(self.claim.measure).digits
        if difference.is_tie:
            return f"equal to {difference.second} with every seed"
        text = f"{difference.mean:+.{digits}f} against {difference.second}"
        if not math.isnan(difference.low):
            p = "< 0.001" if difference.p < 0.001 else f"= {difference.p:.3f}"
            text += f" (95 %: {difference.low:+.{digits}f} to {difference.high:+.{digits}f}, p {p})"
        if math.isnan(paper):
            return text
        excluded = " (excluded)" if difference.excludes(paper) else ""
        return f"{text}, paper {paper:+.{digits}f}{excluded}"


def judge_claims(file: StudyFile, cells: Cells, scale: Scale) -> list[JudgedClaim]:
    """Judge every claim of a study by its measured values."""
    return [_judge(file, claim, cells, scale) for claim in file.claims]


def verdict_of(
    claim: Claim, differences: Sequence[Difference], paper: Sequence[float] = ()
) -> ClaimVerdict:
    """Return the verdict on a claim, given differences that are positive where it is better.

    ``paper`` are the paper's differences. A claim that is open is "smaller than the paper's" if an
    interval excludes the paper's difference.
    """
    if not differences or any(math.isnan(d.mean) or math.isnan(d.low) for d in differences):
        return _UNTESTABLE
    if claim.is_about_order and all(difference.is_tie for difference in differences):
        return "identical"
    verdicts = [_verdict(claim, difference) for difference in differences]
    if "not held" in verdicts:
        return "not held"
    if all(verdict == "held" for verdict in verdicts):
        return "held"
    sign = 1 if claim.kind == "better" else -1
    is_smaller = any(
        sign * value > 0 and difference.is_smaller_than(value)
        for difference, value in zip(differences, paper, strict=False)
    )
    return "smaller than the paper's" if claim.is_about_order and is_smaller else "undecided"


def _verdict(claim: Claim, difference: Difference) -> ClaimVerdict:
    if claim.is_about_order:
        sign = 1 if claim.kind == "better" else -1
        if difference.is_significant:
            return "held" if sign * difference.mean > 0 else "not held"
        return "not held" if difference.is_equivalent or difference.is_tie else "undecided"
    margin = claim.margin or 0.0
    if claim.kind == "at least":
        if difference.low >= -margin:
            return "held"
        return "not held" if difference.high < -margin else "undecided"
    if difference.is_equivalent or (-margin <= difference.low and difference.high <= margin):
        return "held"
    outside = difference.low > margin or difference.high < -margin
    return "not held" if outside else "undecided"


def _judge(file: StudyFile, claim: Claim, cells: Cells, scale: Scale) -> JudgedClaim:
    if scale not in claim.scales:
        return JudgedClaim(claim, _UNTESTABLE, claim.why)
    names = [case for case in cells if _cell(cells, case, claim.method, claim.measure)]
    missing = _missing_values(claim, cells, claim.method)
    if missing:
        required = claim.kind in ("better", "at least")
        return JudgedClaim(claim, "not held" if required else _UNTESTABLE, missing)
    rivals = _by_seed(claim, names, lambda case, label: _cell(cells, case, label, claim.measure))
    ours = rivals.pop("")
    not_run = [name for name, values in rivals.items() if not values]
    rivals = {name: values for name, values in rivals.items() if values}
    if not ours or not rivals:
        return JudgedClaim(claim, _UNTESTABLE, "a case or method was not run")
    highest = max(float(np.mean(list(values.values()))) for values in (ours, *rivals.values()))
    if claim.above is not None and highest < claim.above:
        compared = f"none of the compared methods reached {claim.above:g} on average over the cases"
        return JudgedClaim(claim, _UNTESTABLE, f"{compared}: too little training")
    found = _differences(claim, ours, rivals, _bystanders(claim, cells, names))
    printed = _by_seed(claim, names, lambda case, label: _paper(file, case, label, claim.measure))
    paper = [_paper_difference(printed[""], printed[name], claim) for name in rivals]
    if file.fallback in rivals and rivals[file.fallback] == ours:
        reason = f"{claim.method} fell back to {file.fallback} with every seed"
        return JudgedClaim(claim, _UNTESTABLE, reason, tuple(found), tuple(paper))
    verdict = verdict_of(claim, found, paper)
    notes = [f"not run at this scale: {', '.join(not_run)}"] if not_run else []
    notes += filter(None, (_missing_values(claim, cells, rival) for rival in rivals))
    needed = [d.seeds_needed for d in found if d.seeds_needed is not None]
    if verdict == "undecided" and needed:
        notes.append(f"about {max(needed)} seeds would probably decide it")
    if verdict == _UNTESTABLE:
        notes = ["a single seed cannot show significance"]
    return JudgedClaim(claim, verdict, "; ".join(notes), tuple(found), tuple(paper))


def _differences(
    claim: Claim,
    ours: Mapping[int, float],
    rivals: Mapping[str, Mapping[int, float]],
    bystanders: Mapping[str, Mapping[int, float]],
) -> list[Difference]:
    """Return the differences of a claim's method to its rivals.

    The other methods of the study help to estimate the variances.
    """
    values = by_position({"": ours, **bystanders, **rivals})
    found = judge_rivals(values, "", list(rivals), _margin(claim, rivals))
    return [
        Difference(
            pair.method, -pair.difference, -pair.high, -pair.low, pair.p,
            pair.answer == "equivalent", pair.seeds_needed,
        )
        for pair in found
    ]  # fmt: skip


def _margin(claim: Claim, rivals: Mapping[str, Mapping[int, float]]) -> float:
    """Return the largest difference that does not matter.

    For claims of order it is by default that of comparisons: one point, or one per cent of the
    rivals' mean value for measures that are not percentages.
    """
    if claim.margin is not None or not claim.is_about_order:
        return claim.margin or 0.0
    if measure_of(claim.measure).in_points:
        return MARGIN
    values = [value for by_seed in rivals.values() for value in by_seed.values()]
    return MARGIN / 100 * abs(float(np.mean(values)))


def _bystanders(claim: Claim, cells: Cells, names: Sequence[str]) -> dict[str, dict[int, float]]:
    """Return the values of the methods that a claim about methods does not name."""
    labels = {label for case in cells.values() for label in case} - {claim.method, *claim.than}
    if not claim.than:
        return {}
    every = claim.model_copy(update={"than": sorted(labels)})
    found = _by_seed(every, names, lambda case, label: _cell(cells, case, label, claim.measure))
    return {name: values for name, values in found.items() if name and values}


def _missing_values(claim: Claim, cells: Cells, label: str) -> str:
    """Return in how many of its runs a method has no value of the measure; "" if it always has."""
    values = [
        value
        for case in cells
        if matches(case, claim.cases)
        for value in _cell(cells, case, label, claim.measure).values()
    ]
    missing = sum(math.isnan(value) for value in values)
    if not missing:
        return ""
    runs = f"{missing} of {len(values)} runs"
    if claim.measure in _TARGET_MEASURES:
        return f"{label} never reached the best rival's accuracy in {runs}"
    return f"{label} has no {claim.measure} in {runs}" if missing < len(values) else ""


def _by_seed(claim: Claim, names: Sequence[str], cell: Cell) -> dict[str, dict[int, float]]:
    """Return the method's values by seed under the key "", and each rival's under its name."""
    cases = [name for name in names if matches(name, claim.cases)]
    sign = 1.0 if measure_of(claim.measure).more_is_better else -1.0

    def averaged(where: Sequence[str], label: str) -> dict[int, float]:
        columns = [_since(claim, case, label, cell) for case in where]
        seeds = set.intersection(*(set(column) for column in columns)) if columns else set()
        means = {seed: sign * float(np.mean([c[seed] for c in columns])) for seed in sorted(seeds)}
        return {seed: value for seed, value in means.items() if not math.isnan(value)}

    found = {"": averaged(cases, claim.method)}
    if claim.than_value is not None:
        limit = f"{claim.than_value:g}"
        return found | {limit: dict.fromkeys(found[""], sign * claim.than_value)}
    if claim.than_cases is not None:
        others = [name for name in names if matches(name, claim.than_cases)]
        return found | {", ".join(claim.than_cases): averaged(others, claim.method)}
    return found | {rival: averaged(cases, rival) for rival in claim.than}


def _since(claim: Claim, case: str, label: str, cell: Cell) -> Mapping[int, float]:
    values = cell(case, label)
    if claim.since is None:
        return values
    before = cell(claim.since, label)
    return {seed: values[seed] - before[seed] for seed in values if seed in before}


def _cell(cells: Cells, case: str, label: str, measure: str) -> Mapping[int, float]:
    return cells.get(case, {}).get(label, {}).get(measure, {})


def _paper(file: StudyFile, case: str, label: str, measure: str) -> Mapping[int, float]:
    """Return the paper's value as if it were that of one seed."""
    one = next((c for c in file.cases if c.name == case), None)
    value = None if one is None else one.paper.get(measure, {}).get(label)
    return {} if value is None else {0: value}


def _paper_difference(ours: Mapping[int, float], other: Mapping[int, float], claim: Claim) -> float:
    if claim.than_value is not None or 0 not in ours or 0 not in other:
        return math.nan
    return ours[0] - other[0]
