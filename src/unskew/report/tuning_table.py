"""What a search chose for each method, for tables and pages."""

from collections.abc import Mapping
from html import escape
from typing import Any

from unskew.report.summary import html_table
from unskew.runs.runs import Runs
from unskew.stats.metric import Metric
from unskew.utils.tables import Table

Facts = Mapping[str, Any]


def tuning_facts(runs: Runs) -> dict[str, Facts]:
    """Return what is known of each method's search; empty where nothing was tuned."""
    return {
        method: facts
        for method in runs.methods
        if (facts := runs.of(method)[0].facts.get("tuning")) is not None
    }


def tuning_table(runs: Runs) -> Table | None:
    """Return one row a method: what was chosen, and how it did on the validation part."""
    found = tuning_facts(runs)
    if not found:
        return None
    columns = ["chosen", "lr", "validation", "worst trial", "judged by"]
    rows = [_cells(method, facts, runs.figure) for method, facts in found.items()]
    return Table(columns, rows, title=_title(next(iter(found.values()))))


def tuning_section(runs: Runs) -> str:
    """Return the section of a page as HTML; empty where nothing was tuned."""
    table = tuning_table(runs)
    if table is None:
        return ""
    return (
        f'<h2>Tuning</h2><p class="note">{escape(_explanation(runs))}</p>'
        f'<div class="scroll">{html_table(table)}</div>'
    )


def _explanation(runs: Runs) -> str:
    facts = next(iter(tuning_facts(runs).values()))
    rates = ", ".join(f"{rate:g}" for rate in facts["rates"])
    return (
        f"{_title(facts).capitalize()}. Test samples were not used. Every method first tried the "
        f"learning rates {rates} as it was spelled, then the values its paper searched, or else "
        "rates nearer to its best. The best setting was then trained on all training samples, "
        "with every seed."
    )


def _title(facts: Facts) -> str:
    return (
        f"tuned on {100 * facts['share']:g} % of each client's training samples (trials a method: "
        f"{facts['trials']}, rounds a trial: {facts['rounds']}, seed: {facts['seed']})"
    )


def _cells(method: str, facts: Facts, figure: Metric) -> list[str]:
    values = [each["value"] for each in facts["tried"] if each["value"] is not None]
    worst = min if figure.more_is_better else max
    return [
        method,
        f"{facts['chosen']['lr']:g}",
        figure.text(facts["chosen"]["value"]),
        figure.text(worst(values) if values else None),
        f"{facts['level']} {facts['figure']}",
    ]
