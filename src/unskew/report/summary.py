"""The first screen of a report: what was compared, who leads, how skewed the data is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unskew.report.charts.curves import has_personal_models
from unskew.runs.runs import Runs
from unskew.stats.verdict import TEST, Verdict


@dataclass(frozen=True)
class LeaderCard:
    """What the card about the leader says, as texts; ``badge`` is empty without a rival."""

    method: str
    score: str
    is_significant: bool
    badge: str
    verdict: str
    personal_verdict: str
    judged_by: str = TEST


def compared(runs: Runs) -> str:
    """Say in one sentence what was compared."""
    first, settings = runs[0], runs[0].facts.get("configuration", {})
    seeds = len({run.seed for run in runs})
    parts = [
        f"{_several(len(runs.methods), 'method')}, {_several(seeds, 'seed')}",
        f"{first.network} on {_several(first.clients, 'client')}{_cohort(settings)}",
        f"{_several(first.task_rounds, 'round')}",
    ]
    if settings:
        work = f"{settings['steps']} steps" if settings.get("steps") else (
            _several(settings.get("epochs") or 1, "epoch")
        )  # fmt: skip
        parts.append(f"{work} of {settings['optimizer']} a round, {_rate(runs)}")
    return "; ".join(parts)


def leader_card(runs: Runs) -> LeaderCard | None:
    """Return what is said of the leader; None if no test was made."""
    verdict = runs.verdict()
    if verdict is None:
        return None
    where = "common test" if runs.level == "global" else "clients' own tests"
    values = [run.last(runs.level, runs.metric.name) for run in runs.of(verdict.leader)]
    mean = runs.metric.text(sum(values) / len(values))
    personal = runs.verdict("personal") if has_personal_models(runs) else None
    return LeaderCard(
        method=verdict.leader,
        score=f"{mean} {runs.metric.name} on the {where}",
        is_significant=verdict.is_significant,
        badge=_badge(verdict),
        verdict=str(verdict),
        personal_verdict="" if personal is None else str(personal),
    )


def _badge(verdict: Verdict) -> str:
    if not verdict.differences:
        return ""
    if verdict.is_significant:
        return "the lead is significant"
    num_others = len(verdict.differences)
    num_worse = num_others - len(verdict.not_significant)
    if not num_worse:
        return "not significant"
    return f"significantly better than {num_worse} of {num_others}"


def _rate(runs: Runs) -> str:
    rates = {method: runs.learning_rate(method) for method in runs.methods}
    if len(set(rates.values())) > 1:
        return "each method's own rate"
    return f"rate {next(iter(rates.values())):g}"


def _cohort(settings: Mapping[str, Any]) -> str:
    if settings.get("cohort"):
        return f", {settings['cohort']} a round"
    share = settings.get("participation")
    return f", {100 * share:g} % a round" if share and share < 1 else ""


def _several(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
