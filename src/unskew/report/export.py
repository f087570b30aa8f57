"""The figures and tables of a comparison as files, for papers."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from unskew.errors import UnskewError
from unskew.report.charts import Chart, all_charts
from unskew.report.draw import draw_chart
from unskew.report.rows import methods_csv, tuning_csv
from unskew.report.tuning_table import history_table, tuning_table
from unskew.runs.atomic import write_bytes
from unskew.runs.runs import Runs
from unskew.utils.printable import encoded
from unskew.utils.tables import Table

_DPI = 200
_SUFFIXES = (".csv", ".tex", ".md")
TABLE_FILES = tuple(
    name + suffix for name in ("table", "tuning", "tuning-history") for suffix in _SUFFIXES
)
"""The files that :func:`export_table` writes."""


def export_figures(
    folder: str | Path, runs: Runs, *, target: float | None = None, embedding: bool = False
) -> list[Path]:
    """Write each chart as PNG, SVG and CSV into a folder, and return the files."""
    return export_charts(folder, all_charts(runs, target=target, embedding=embedding), runs.methods)


def export_charts(
    folder: str | Path, charts: Iterable[Chart], methods: Sequence[str]
) -> list[Path]:
    """Write charts into a folder; the order of ``methods`` defines their colours."""
    folder = _created(folder)
    written = []
    for chart in charts:
        figure = draw_chart(chart, methods)
        for suffix in ("png", "svg"):
            path = folder / f"{chart.name}.{suffix}"
            # Without a date, the same runs give the same bytes.
            metadata = {"Date": None} if suffix == "svg" else {}
            figure.savefig(path, dpi=_DPI, metadata=metadata)
            written.append(path)
        path = folder / f"{chart.name}.csv"
        write_bytes(path, encoded(chart.table.to_csv()))
        written.append(path)
    return written


def export_table(folder: str | Path, runs: Runs, *, target: float | None = None) -> list[Path]:
    """Write the table as CSV, LaTeX and Markdown into a folder, and return the files.

    The CSV file has all numbers in full, the others are for readers. If methods were tuned, the
    chosen hyper-parameters are a second table, and all settings that were tried a third.
    """
    numbers = methods_csv(runs, target)
    written = write_table(_created(folder) / "table", runs.table_with_verdict(target), numbers)
    tuned, history = tuning_table(runs), history_table(runs)
    if tuned is not None and history is not None:
        written += write_table(Path(folder) / "tuning", tuned, tuning_csv(runs))
        written += write_table(Path(folder) / "tuning-history", history, history.to_csv())
    return written


def write_table(path: Path, table: Table, csv: str) -> list[Path]:
    """Write a table as LaTeX and Markdown, and its numbers as the given CSV; return the files."""
    contents = (csv, table.to_latex(), table.to_markdown() + "\n")
    texts = dict(zip(_SUFFIXES, contents, strict=True))
    for suffix, text in texts.items():
        write_bytes(path.with_suffix(suffix), encoded(text))
    return [path.with_suffix(suffix) for suffix in texts]


def _created(folder: str | Path) -> Path:
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnskewError(f"{folder}: cannot be created: {error.strerror}") from None
    return folder
