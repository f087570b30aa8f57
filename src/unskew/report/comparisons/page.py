"""The page of a summary, and its figures and tables as files."""

from itertools import groupby
from operator import attrgetter
from pathlib import Path

from unskew.report.comparisons.charts import summary_charts
from unskew.report.comparisons.summary import ComparisonSummary, FederationResult
from unskew.report.export import export_charts, export_tables
from unskew.report.page import chart_values, section_values, write_text
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
    tables = {"summary": summary.table(), "answers": summary.answers()}
    written = export_charts(folder, summary_charts(summary), summary.methods)
    return written + export_tables(folder, tables)


def _size(federation: FederationResult) -> str:
    clients, seeds = federation.runs[0].clients, federation.verdict.seeds
    return f"{plural(clients, 'client')}, {plural(seeds, 'seed')}"
