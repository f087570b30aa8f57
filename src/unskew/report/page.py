"""The report of a comparison: one self-contained HTML page, and the tables next to it."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args

from unskew.data.targets import BINS
from unskew.errors import UnskewError
from unskew.report.charts import Chart, all_charts
from unskew.report.data_findings import data_findings
from unskew.report.densities import density_notes
from unskew.report.export import TABLE_FILES, export_table
from unskew.report.first_screen import complete_diagnosis, describe, leader_card
from unskew.report.reproduce import configuration, python_text
from unskew.report.templating import render
from unskew.report.tuning_table import search_text, tuning_table
from unskew.runs.atomic import write_bytes, write_json
from unskew.runs.file_names import PAGE
from unskew.runs.json_files import read_json_object
from unskew.runs.leftovers import remove_dead_writes
from unskew.runs.ownership import check_comparison_folder, is_report_page
from unskew.runs.run import FinalBy, Level
from unskew.runs.runs import Runs
from unskew.stats.judging import MARGIN
from unskew.stats.waves import Waves
from unskew.utils.printable import encoded

COMPARISON = "comparison.json"
"""The file in a comparison's folder that makes it one: its command, methods and judging."""
_MAX_CSV = 100_000
"""The maximum length of a table that is embedded in the page; exported files have all of it."""


def prepare_comparison_folder(out: Path) -> None:
    """Raise if a comparison would overwrite foreign files; remove those of killed writes."""
    check_comparison_folder(out, COMPARISON, PAGE, TABLE_FILES)
    remove_dead_writes(out, (COMPARISON, PAGE, *TABLE_FILES))


def write_comparison(
    out: str | Path, runs: Runs, *, target: float | None = None, command: str | None = None
) -> Path:
    """Write the page and the tables of a comparison into its folder; return the page."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    record = {"command": command, "target": target, "methods": runs.methods}
    judging = {"final": runs.final, "margin": runs.margin, "metric": runs.metric.name}
    level = {"level": runs.level}
    waves = None if runs.waves is None else asdict(runs.waves)
    write_json(out / COMPARISON, record | judging | level | {"waves": waves})
    export_table(out, runs, target=target)
    return write_page(out / PAGE, runs, target=target, command=command)


def default_page(folders: Sequence[Path]) -> Path:
    """Return where the page about folders is written unless a path is given.

    That is the folder itself or, for several, the working folder. A foreign file is an error.
    """
    path = folders[0] / PAGE if len(folders) == 1 else Path(PAGE)
    if path.exists() and not is_report_page(path):
        raise UnskewError(f"{path}: exists, and is not a report page; choose a path with --out")
    return path


def write_page(
    path: str | Path,
    runs: Runs,
    *,
    target: float | None = None,
    command: str | None = None,
    embedding: bool = False,
) -> Path:
    """Write the page of a comparison and return its path.

    ``target`` is the value of the metric whose cost is shown, ``command`` the shell command that
    creates the page, and ``embedding`` adds a t-SNE of the clients.
    """
    if not any(run.metrics for run in runs):
        raise UnskewError("runs: there is nothing to report, because no round is finished yet")
    return write_text(path, page_text(runs, target, command, embedding=embedding))


def write_text(path: str | Path, text: str) -> Path:
    """Write the text of a page and return its path."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, encoded(text))
    except OSError as error:
        raise UnskewError(f"{path}: cannot be written: {error.strerror}") from None
    return path


def page_text(
    runs: Runs, target: float | None, command: str | None, *, embedding: bool = False
) -> str:
    """Return the page as text."""
    charts = all_charts(runs, target=target, embedding=embedding)
    data = runs[0].metadata.get("data", {})
    is_regression = "target" in runs[0].metadata
    return render(
        "page.html.j2",
        title=runs.table(target).title,
        heading=f"{runs[0].data} · {data['skew']}" if data.get("skew") else runs[0].data,
        description=describe(runs),
        leader=leader_card(runs),
        diagnosis=complete_diagnosis(data.get("diagnosis")),
        classes=BINS if is_regression else data.get("classes"),
        is_regression=is_regression,
        table=runs.table_with_verdict(target),
        metric=runs.metric.name,
        level=runs.level,
        pooled=runs.metric.is_pooled,
        final=runs.final_text,
        any_personal_level=runs.has_personal_level,
        sections=[section_values(*group) for group in groupby(charts, attrgetter("section"))],
        findings=data_findings(runs),
        densities=density_notes(runs),
        tuning=tuning_table(runs),
        search=search_text(runs),
        configuration=configuration(runs),
        command=command,
        python=python_text(runs, command),
        data={"methods": runs.methods, "charts": list(map(chart_values, charts))},
    )


def section_values(name: str, members: Iterable[Chart]) -> dict[str, Any]:
    """Return the values of a section; it has a note only if all its charts share it."""
    charts = list(members)
    notes = {chart.note for chart in charts}
    return {"name": name, "note": notes.pop() if len(notes) == 1 else None, "charts": charts}


def chart_values(chart: Chart) -> dict[str, Any]:
    """Return the values from which the script draws a chart."""
    csv = chart.table.to_csv()
    return {
        "name": chart.name,
        "title": chart.title,
        "kind": chart.kind,
        "data": chart.data,
        "csv": csv if len(csv) <= _MAX_CSV else None,
    }


@dataclass(frozen=True)
class ComparisonRecord:
    """The command, target, methods and judging stored in a comparison's folder, if any."""

    command: str | None = None
    target: float | None = None
    methods: tuple[str, ...] = ()
    final: FinalBy = "mean"
    margin: float = MARGIN
    waves: Waves | None = None
    metric: str | None = None
    level: Level | None = None

    def sorted(self, runs: Runs, metric: str | None = None) -> Runs:
        """Return runs in the order of the comparison, so that methods keep their colours.

        ``metric`` is judged in place of the comparison's, at another level if it was not measured
        at the recorded one.
        """
        order = {method: index for index, method in enumerate(self.methods)}
        ranked = sorted(runs, key=lambda run: order.get(run.method, len(order)))
        judging: dict[str, Any] = {
            "final": self.final,
            "margin": self.margin,
            "metric": metric or self.metric,
            "waves": self.waves,
        }
        found = Runs(ranked, **judging, level=self.level)
        known = any(run.is_measured(found.level, found.metric) for run in found)
        return found if known else Runs(ranked, **judging)


def read_comparison(out: str | Path) -> ComparisonRecord:
    """Return what is stored in a comparison's folder; empty if there is nothing."""
    try:
        record = read_json_object(Path(out) / COMPARISON)
    except UnskewError:
        return ComparisonRecord()
    command, target, methods = (record.get(name) for name in ("command", "target", "methods"))
    if isinstance(target, bool) or not isinstance(target, int | float | None):
        target = None
    if not isinstance(methods, list) or not all(isinstance(each, str) for each in methods):
        methods = []
    final, margin, metric = (record.get(name) for name in ("final", "margin", "metric"))
    return ComparisonRecord(
        command if isinstance(command, str) else None,
        target,
        tuple(methods),
        "last" if final == "last" else "mean",
        float(margin) if isinstance(margin, int | float) else MARGIN,
        _waves(record.get("waves")),
        metric if isinstance(metric, str) else None,
        next((each for each in get_args(Level) if each == record.get("level")), None),
    )


def _waves(stored: object) -> Waves | None:
    """Return a stored plan of waves, if it is one."""
    sizes = stored.get("seeds") if isinstance(stored, dict) else None
    if not isinstance(stored, dict) or not isinstance(sizes, list) or not sizes:
        return None
    if not all(isinstance(size, int) and size > 1 for size in sizes):
        return None
    if sizes != sorted(set(sizes)):
        return None
    return Waves(tuple(sizes), best=stored.get("best") is True)
