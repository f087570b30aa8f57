"""The first screen of a report: what was compared, and the best method."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unskew.runs.decision import decision_text
from unskew.runs.runs import Runs
from unskew.stats.verdict import TEST, Verdict, tested_on
from unskew.utils.wording import plural


@dataclass(frozen=True)
class LeaderCard:
    """The texts of the card about the best method; ``badge`` is empty if there is no other."""

    method: str
    score: str
    is_significant: bool
    badge: str
    verdict: str
    other_verdict: str
    decision: str
    judged_by: str = TEST


def describe(runs: Runs) -> str:
    """Return one sentence that describes what was compared."""
    first, settings = runs[0], runs[0].metadata.get("configuration", {})
    seeds = len({run.seed for run in runs})
    parts = [
        f"{plural(len(runs.methods), 'method')}, {plural(seeds, 'seed')}",
        f"{first.network} on {plural(first.clients, 'client')}{_cohort(settings)}",
        f"{plural(first.task_rounds, 'round')}",
    ]
    if settings:
        work = f"{settings['steps']} steps" if settings.get("steps") else (
            plural(settings.get("epochs") or 1, "epoch")
        )  # fmt: skip
        parts.append(f"{work} of {settings['optimizer']} per round, {_lr(runs)}")
    return "; ".join(parts)


_SHOWN = (
    *("samples", "label_skew", "label_skew_by_chance"),
    *("classes_held", "effective_classes", "size_ratio"),
)  # fmt: skip
"""The measures of skew that the page shows."""


def complete_diagnosis(diagnosis: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a stored diagnosis if it has every measure that the page shows."""
    if diagnosis is None or any(diagnosis.get(name) is None for name in _SHOWN):
        return None
    return diagnosis


_TESTS = {
    "global": "common test",
    "local": "clients' local tests",
    "personal": "clients' local tests with personal models",
}


def leader_card(runs: Runs) -> LeaderCard | None:
    """Return the card about the best method; None if the runs were not evaluated."""
    verdict = runs.verdict()
    if verdict is None:
        return None
    where = _TESTS[runs.level]
    mean = runs.metric.text(verdict.means[verdict.leader])
    # Personal models and global ones have a verdict each, if there are both.
    other = runs.global_level if runs.level == "personal" else "personal"
    besides = runs.verdict(other) if runs.has_personal_level else None
    return LeaderCard(
        method=verdict.leader,
        score=f"{mean} {runs.metric.name} on the {where}, {runs.final_text}",
        is_significant=verdict.is_significant,
        badge=_badge(verdict),
        verdict=str(verdict),
        other_verdict="" if besides is None or not besides.pairs else _besides(besides),
        decision=decision_text(runs),
    )


def _besides(verdict: Verdict) -> str:
    """Return the verdict of a level that is not the one that is judged, with its model."""
    if verdict.level == "personal":
        return str(verdict)
    return f"By the global model on {tested_on(verdict.level, verdict.metric)}: {verdict.sentence}"


def _badge(verdict: Verdict) -> str:
    if not verdict.pairs:
        return ""
    if verdict.is_significant:
        return "the best"
    count = len(verdict.answers.best)
    if count == 1:
        return "leads"
    return f"one of {count} methods that may be the best"


def _lr(runs: Runs) -> str:
    lrs = {runs.learning_rate(method) for method in runs.methods}
    return f"lr {lrs.pop():g}" if len(lrs) == 1 else "a tuned lr per method"


def _cohort(settings: Mapping[str, Any]) -> str:
    if settings.get("cohort"):
        return f", {settings['cohort']} per round"
    share = settings.get("participation")
    return f", {100 * share:g} % per round" if share and share < 1 else ""
