"""Runs and comparisons as HTML, for notebooks."""

from typing import TYPE_CHECKING

from unskew.runs.curves import seed_curves
from unskew.utils.html import html_block, html_heading, html_legend, html_line, html_table
from unskew.utils.svg import Line, curves_svg
from unskew.utils.wording import plural

if TYPE_CHECKING:
    from unskew.runs.run import Run
    from unskew.runs.runs import Runs


def run_html(run: "Run") -> str:
    """Return the last metrics of a run, its cost, and its curves."""
    heading = html_heading(f"{run.method} on {run.data}, seed {run.seed}")
    if not run.metrics:
        return html_block(heading, html_line("No round is finished yet."))
    table, cost = run.table(), run.cost
    seconds = sum(row.get("seconds", 0.0) for row in run.metrics)
    sizes = (
        f"{run.network}, {plural(run.clients, 'client')}, {plural(run.rounds, 'round')} in "
        f"{seconds:.1f} s, {(cost.bytes_up + cost.bytes_down) / 1e6:.2f} MB sent"
    )
    lines = [_line(run, level, name) for level, name in _LEVELS.items()]
    drawn = [line for line in lines if line is not None]
    metric = run.metric
    chart = curves_svg(drawn, x="round", y=metric.name, percent=metric.is_share)
    return html_block(
        heading,
        html_line(sizes, soft=True),
        html_table(table.columns, table.rows[-1:]),
        *(html_line(note) for note in table.notes),
        chart,
        html_legend([line.name for line in drawn]) if chart else "",
    )


def runs_html(runs: "Runs") -> str:
    """Return the verdict of a comparison, its table, and the curves of its methods."""
    if not any(run.metrics for run in runs):
        return html_block(html_line("No round is finished yet."))
    table, verdict = runs.table_with_verdict(), runs.verdict()
    metric = runs.metric
    lines = [line for method in runs.methods if (line := _mean_line(runs, method)) is not None]
    where = f"the {_LEVELS[runs.level]}"
    label = f"{metric.name} of {where}" if runs.level == "personal" else f"{metric.name} on {where}"
    chart = curves_svg(lines, x="round", y=label, percent=metric.is_share)
    return html_block(
        html_heading(table.title),
        "" if verdict is None else html_line(str(verdict)),
        html_table(table.columns, table.rows, bold=None if verdict is None else verdict.leader),
        *(html_line(note) for note in table.notes),
        html_line(f"{label}, mean over seeds".capitalize(), soft=True) if chart else "",
        chart,
        html_legend([line.name for line in lines]) if chart else "",
    )


_LEVELS = {"global": "common test", "local": "clients' own tests", "personal": "personal models"}


def _line(run: "Run", level: str, name: str) -> Line | None:
    """Return the curve of a level; None if it was not measured, or if it is that of another."""
    rounds, values = run.curve(level, run.metric.name)
    if not rounds or (level == "personal" and values == run.curve("local", run.metric.name)[1]):
        return None
    return Line(name, rounds, values)


def _mean_line(runs: "Runs", method: str) -> Line | None:
    rounds, values = seed_curves(runs.of(method), runs.level, runs.metric.name)
    if not values.size:
        return None
    mean, sd = values.mean(0), values.std(0, ddof=min(1, len(values) - 1))
    return Line(method, rounds, mean.tolist(), (mean - sd).tolist(), (mean + sd).tolist())
