"""Judging a paper's claims: by differences over seeds, so that noise is called noise."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unskew.experiments.studies.measure_registry import measure_of
from unskew.experiments.studies.study import Claim, Scale, StudyFile, matches
from unskew.experiments.studies.values import Cells
from unskew.stats.paired import Difference, compare_with_others

_TO_A_TARGET = ("rounds", "cost")

Cell = Callable[[str, str], Mapping[int, float]]
"""Gives the figures of a case and a label, by seed."""

Word = Literal["held", "not held", "within noise", "not testable at this scale"]
_UNTESTABLE: Word = "not testable at this scale"


@dataclass(frozen=True)
class Judged:
    """A claim, the verdict, and the differences it rests on.

    Differences are signed so that positive means better, whichever way the measure runs.
    ``paper`` is the paper's own difference, where its figures tell.
    """

    claim: Claim
    word: Word
    why: str
    differences: tuple[Difference, ...] = ()
    paper: tuple[float, ...] = ()

    def __str__(self) -> str:
        parts = [
            self._amount(difference, told)
            for difference, told in zip(self.differences, self.paper, strict=True)
        ]
        return "; ".join([*parts, self.why] if self.why else parts)

    def _amount(self, difference: Difference, told: float) -> str:
        digits = measure_of(self.claim.measure).digits
        if difference.is_tie:
            return f"the same as {difference.second} with every seed"
        text = f"{difference.mean:+.{digits}f} against {difference.second}"
        if not math.isnan(difference.low):
            p = "< 0.001" if difference.p < 0.001 else f"= {difference.p:.3f}"
            text += f" (95 %: {difference.low:+.{digits}f} to {difference.high:+.{digits}f}, p {p})"
        return text if math.isnan(told) else f"{text}, paper {told:+.{digits}f}"


def judge_claims(file: StudyFile, cells: Cells, scale: Scale) -> list[Judged]:
    """Judge every claim of a study by what was measured."""
    return [_judge(file, claim, cells, scale) for claim in file.claims]


def verdict(claim: Claim, differences: Sequence[Difference]) -> Word:
    """Say what differences, positive where the method is better, make of a claim."""
    if not differences or any(math.isnan(d.mean) for d in differences):
        return _UNTESTABLE
    if any(math.isnan(d.low) for d in differences):
        return _UNTESTABLE
    outcomes = [_outcome(claim, difference) for difference in differences]
    if "not held" in outcomes:
        return "not held"
    return "held" if all(outcome == "held" for outcome in outcomes) else "within noise"


def _outcome(claim: Claim, difference: Difference) -> Word:
    margin = claim.margin
    if claim.kind in ("better", "worse"):
        sign = 1 if claim.kind == "better" else -1
        if not difference.is_significant:
            return "within noise"
        return "held" if sign * difference.mean > 0 else "not held"
    if claim.kind == "at least":
        if difference.low >= -margin:
            return "held"
        return "not held" if difference.high < -margin else "within noise"
    if -margin <= difference.low and difference.high <= margin:
        return "held"
    apart = difference.low > margin or difference.high < -margin
    return "not held" if apart else "within noise"


def _judge(file: StudyFile, claim: Claim, cells: Cells, scale: Scale) -> Judged:
    if scale not in claim.scales:
        return Judged(claim, _UNTESTABLE, claim.why)
    names = [case for case in cells if _cell(cells, case, claim.method, claim.measure)]
    missed = _without_figure(claim, cells, claim.method)
    if missed:
        bad = claim.kind in ("better", "at least")
        return Judged(claim, "not held" if bad else _UNTESTABLE, missed)
    figures = _figures(claim, names, lambda case, label: _cell(cells, case, label, claim.measure))
    own = figures.pop("")
    lacking = [name for name, values in figures.items() if not values]
    figures = {name: values for name, values in figures.items() if values}
    if not own or not figures:
        return Judged(claim, _UNTESTABLE, "a case or method was not played")
    reached = max(float(np.mean(list(values.values()))) for values in (own, *figures.values()))
    if claim.above is not None and reached < claim.above:
        return Judged(claim, _UNTESTABLE, f"no method reached {claim.above:g}: too little training")
    found = compare_with_others(claim.method, {claim.method: own, **figures})
    printed = _figures(claim, names, lambda case, label: _paper(file, case, label, claim.measure))
    told = [_mean_difference(printed[""], printed[name], claim) for name in figures]
    word = verdict(claim, found)
    notes = [f"not played here: {', '.join(lacking)}"] if lacking else []
    notes += filter(None, (_without_figure(claim, cells, rival) for rival in figures))
    if word == _UNTESTABLE:
        notes = ["one seed cannot tell a difference from noise"]
    return Judged(claim, word, "; ".join(notes), tuple(found), tuple(told))


def _without_figure(claim: Claim, cells: Cells, label: str) -> str:
    """Say in how many of its runs, if in some, a method has no figure; "" if it always has."""
    found = [
        value
        for case in cells
        if matches(case, claim.cases)
        for value in _cell(cells, case, label, claim.measure).values()
    ]
    missed = sum(math.isnan(value) for value in found)
    if not missed:
        return ""
    runs = f"{missed} of {len(found)} runs"
    if claim.measure in _TO_A_TARGET:
        return f"{label} never reached the best rival's accuracy in {runs}"
    return f"{label} has no {claim.measure} in {runs}" if missed < len(found) else ""


def _figures(claim: Claim, names: Sequence[str], cell: Cell) -> dict[str, dict[int, float]]:
    """Return the method's figure by seed under an empty name, and each rival's under its own."""
    cases = [name for name in names if matches(name, claim.cases)]
    sign = 1.0 if measure_of(claim.measure).more_is_better else -1.0

    def pooled(where: Sequence[str], label: str) -> dict[int, float]:
        columns = [_since(claim, case, label, cell) for case in where]
        seeds = set.intersection(*(set(column) for column in columns)) if columns else set()
        means = {seed: sign * float(np.mean([c[seed] for c in columns])) for seed in sorted(seeds)}
        return {seed: value for seed, value in means.items() if not math.isnan(value)}

    found = {"": pooled(cases, claim.method)}
    if claim.than_value is not None:
        limit = f"{claim.than_value:g}"
        return found | {limit: dict.fromkeys(found[""], sign * claim.than_value)}
    if claim.than_cases is not None:
        others = [name for name in names if matches(name, claim.than_cases)]
        return found | {", ".join(claim.than_cases): pooled(others, claim.method)}
    return found | {rival: pooled(cases, rival) for rival in claim.than}


def _since(claim: Claim, case: str, label: str, cell: Cell) -> Mapping[int, float]:
    values = cell(case, label)
    if claim.since is None:
        return values
    before = cell(claim.since, label)
    return {seed: values[seed] - before[seed] for seed in values if seed in before}


def _cell(cells: Cells, case: str, label: str, measure: str) -> Mapping[int, float]:
    return cells.get(case, {}).get(label, {}).get(measure, {})


def _paper(file: StudyFile, case: str, label: str, measure: str) -> Mapping[int, float]:
    """Return the paper's figure as if it were that of one seed."""
    one = next((c for c in file.cases if c.name == case), None)
    value = None if one is None else one.paper.get(measure, {}).get(label)
    return {} if value is None else {0: value}


def _mean_difference(own: Mapping[int, float], other: Mapping[int, float], claim: Claim) -> float:
    if claim.than_value is not None or 0 not in own or 0 not in other:
        return math.nan
    return own[0] - other[0]
