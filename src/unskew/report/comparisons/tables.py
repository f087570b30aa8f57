"""A summary as tables and sentences."""

from typing import TYPE_CHECKING

from unskew.stats.hierarchical import SCALE
from unskew.stats.judging import ERROR_RATE
from unskew.stats.ranks import federations_needed
from unskew.utils.html import html_block, html_heading, html_line, html_table
from unskew.utils.tables import Table
from unskew.utils.wording import joined, plural

if TYPE_CHECKING:
    from unskew.report.comparisons.summary import ComparisonSummary, FederationResult

MODEL = (
    "a hierarchical model of the federations' paired differences over seeds; gains of federations "
    f"are normally distributed, with a half-normal prior (scale {SCALE:g}) of their spread"
)
"""How gains are estimated, for readers."""


def unit(summary: "ComparisonSummary") -> str:
    """Return the unit of gains."""
    if summary.metric.is_share:
        return "percentage points"
    return f"per cent of the {summary.metric.name} of {summary.baseline}"


def gains_table(summary: "ComparisonSummary") -> Table:
    """Return one row per method, the largest gain first, then the baseline, then the others."""
    total, ranks = len(summary.federations), summary.ranks
    limit = f"P(gain > {summary.margin:g})"
    columns = ["method", "federations", "gain", "95 % interval", "spread", "P(helps)", limit]
    others = [m for m in summary.methods if m not in summary.gains and m != summary.baseline]
    rows = []
    for method in [*summary.gains, summary.baseline, *others]:
        count = total if method == summary.baseline else len(summary.effects(method))
        cells = [method, f"{count} of {total}"]
        gain = summary.gains.get(method)
        if gain is not None:
            cells += [f"{gain.mean:+.2f}", f"{gain.low:+.2f} to {gain.high:+.2f}"]
            cells += [f"{gain.spread:.2f}", f"{gain.p_helps:.2f}", f"{gain.p_exceeds_margin:.2f}"]
        else:
            cells += ["baseline" if method == summary.baseline else "-", *["-"] * 4]
        if ranks is not None:
            mean = ranks.means.get(method)
            cells.append("-" if mean is None else f"{mean:.2f}")
        rows.append(cells)
    if ranks is not None:
        columns.append("mean rank")
    title = f"gain over {summary.baseline} in {summary.metric.name}, {unit(summary)}"
    return Table(columns, rows, title=title, notes=notes(summary))


def answers_table(summary: "ComparisonSummary") -> Table:
    """Return each method's difference to the baseline in each federation, and the answer."""
    order = [row[0] for row in gains_table(summary).rows if row[0] != summary.baseline]
    rows = [[m, *(_answer(each, m) for each in summary.federations)] for m in order]
    columns = ["method", *(each.name for each in summary.federations)]
    return Table(columns, rows, title=f"each federation's difference to {summary.baseline}")


def headline(summary: "ComparisonSummary") -> str:
    """Return one sentence about the method with the largest gain."""
    if len(summary.federations) < 2:
        return (
            "A gain over federations needs two or more comparisons; there is one, so only its "
            "answers are shown."
        )
    if not summary.gains:
        return f"No rival of {summary.baseline} was compared in two federations with two seeds."
    method, gain = next(iter(summary.gains.items()))
    return (
        f"{method} has the largest mean gain over {summary.baseline}: {gain.mean:+.2f} "
        f"({gain.low:+.2f} to {gain.high:+.2f}); on a new federation it helps with probability "
        f"{gain.p_helps:.2f}."
    )


def ranks_text(summary: "ComparisonSummary") -> str:
    """Return what ranks show, or what they would need."""
    ranks, total = summary.ranks, len(summary.federations)
    common = len(summary.ranked_methods)
    if ranks is None:
        if common < 2:
            return "Mean ranks need two methods that all federations have."
        needed = federations_needed(common)
        return (
            f"Mean ranks of {plural(common, 'method')} need {needed} federations for a "
            f"significant difference; there {'is' if total == 1 else 'are'} {total}."
        )
    best = next(iter(ranks.means))
    worse = [
        m for m in ranks.means if ranks.means[m] - ranks.means[best] > ranks.critical_difference
    ]
    test = f"Friedman's test: p {'< 0.001' if ranks.p < 0.001 else f'= {ranks.p:.2g}'}"
    if not worse or ranks.p >= ERROR_RATE:
        return f"{best} has the best mean rank, but significantly better than none ({test})."
    return f"{best} has the best mean rank, significantly better than {joined(worse)} ({test})."


def notes(summary: "ComparisonSummary") -> list[str]:
    """Return the sentences below the table."""
    return [headline(summary), ranks_text(summary), *summary.remarks]


def summary_html(summary: "ComparisonSummary") -> str:
    """Return sentences and both tables for notebooks."""
    gains, answers = gains_table(summary), answers_table(summary)
    return html_block(
        html_heading(gains.title),
        *map(html_line, gains.notes),
        html_table(gains.columns, gains.rows, bold=next(iter(summary.gains), None)),
        html_heading(answers.title),
        html_table(answers.columns, answers.rows),
        html_line(f"Gains: {MODEL}.", soft=True),
    )


def _answer(federation: "FederationResult", method: str) -> str:
    return federation.runs.not_judged.get(method) or federation.verdict.against(method)
