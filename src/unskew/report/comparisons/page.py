"""The page of a summary, and its figures and tables as files."""

from dataclasses import asdict
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from unskew.report.comparisons.charts import summary_charts
from unskew.report.comparisons.summary import ComparisonSummary, FederationResult
from unskew.report.export import export_charts, write_table
from unskew.report.page import chart_values, section_values, write_text
from unskew.report.rows import Row, csv_text
from unskew.report.templating import render
from unskew.utils.wording import plural


def write_summary(
    path: str | Path, summary: ComparisonSummary, *, command: str | None = None
) -> Path:
    """Write the page of a summary and return its path; ``command`` is what created it."""
    charts = summary_charts(summary)
    table = summary.table()
    text = render(
        "comparisons.html.j2",
        title=table.title,
        heading=f"{plural(len(summary.methods), 'method')} on "
        f"{plural(len(summary.federations), 'federation')}",
        notes=table.notes,
        description=f"{table.title[:1].upper()}{table.title[1:]}",
        table=table,
        best=next(iter(summary.gains), None),
        answers=summary.answers(),
        federations=[(each.name, _size(each)) for each in summary.federations],
        margin=f"{summary.margin:g}",
        sections=[section_values(*group) for group in groupby(charts, attrgetter("section"))],
        command=command,
        data={"methods": summary.methods, "charts": list(map(chart_values, charts))},
    )
    return write_text(path, text)


def export_summary(folder: str | Path, summary: ComparisonSummary) -> list[Path]:
    """Write the figures (PNG, SVG, CSV) and the tables (CSV, LaTeX, Markdown) into a folder."""
    written = export_charts(folder, summary_charts(summary), summary.methods)
    written += write_table(Path(folder) / "summary", summary.table(), csv_text(_gains(summary)))
    return written + write_table(
        Path(folder) / "answers", summary.answers(), csv_text(_pairs(summary))
    )


def _gains(summary: ComparisonSummary) -> list[Row]:
    """Return one row per method that has a gain, with its mean rank."""
    ranks = {} if summary.ranks is None else summary.ranks.means
    return [
        {"method": method, **asdict(gain), "mean_rank": ranks.get(method)}
        for method, gain in summary.gains.items()
    ]


def _pairs(summary: ComparisonSummary) -> list[Row]:
    """Return one row per method and federation: the difference to the baseline and the answer."""
    return [
        {"federation": each.name, **asdict(pair)}
        for each in summary.federations
        for pair in each.verdict.pairs
    ]


def _size(federation: FederationResult) -> str:
    clients, seeds = federation.runs[0].clients, federation.verdict.seeds
    return f"{plural(clients, 'client')}, {plural(seeds, 'seed')}"
