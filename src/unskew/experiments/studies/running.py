"""Running a study: from its file to its folder of results."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unskew.experiments.cluster.places import On
from unskew.experiments.studies.charts import density_chart, time_chart
from unskew.experiments.studies.claims import JudgedClaim, judge_claims
from unskew.experiments.studies.overview import draw_overview
from unskew.experiments.studies.probing import draw_probes, probe_study
from unskew.experiments.studies.result import markdown_of, result_of
from unskew.experiments.studies.study import Study
from unskew.experiments.studies.study_scheduler import StudyRuns, run_study_cases
from unskew.experiments.studies.values import cells_of
from unskew.experiments.termination import checkpoints_on_sigterm
from unskew.report.charts import all_charts
from unskew.report.draw import draw_chart
from unskew.report.page import write_page
from unskew.runs.atomic import write_bytes, write_json
from unskew.utils.folders import check_folder
from unskew.utils.jsonable import to_jsonable
from unskew.utils.path_names import path_name

_RESULT = "result.json"
_DPI = 110
_PRINTED_KINDS = ("curves", "boxes", "bars", "bubbles", "histograms")
"""The kinds of charts that papers print; the pages have the others too."""


@dataclass(frozen=True)
class StudyOutcome:
    """The result of a study, its judged claims, and the folder they are written to."""

    study: Study
    result: dict[str, Any]
    judged: Sequence[JudgedClaim]
    folder: Path


@checkpoints_on_sigterm()
def run_study(
    study: Study,
    out: str | Path,
    *,
    resume: bool = True,
    jobs: int | None = None,
    on: On = None,
    progress: bool | None = None,
    command: str | None = None,
) -> StudyOutcome:
    """Run a study and write result.json, result.md, figures and pages into a folder.

    Runs are cached by content in the folder ``runs`` next to it, so that studies share them. A
    folder that holds anything but the results of a study is refused.
    """
    out = Path(out)
    check_folder(out, (_RESULT,), "study", "results of a study")
    out.mkdir(parents=True, exist_ok=True)
    cache = out.parent / "runs"
    study_runs = run_study_cases(study, cache, resume=resume, jobs=jobs, on=on, progress=progress)
    cells = cells_of(study_runs)
    probed, drawings = probe_study(study, cache / "probes")
    for case, found in probed.items():
        for label, measures in found.items():
            cells.setdefault(case, {}).setdefault(label, {}).update(measures)
    judged = judge_claims(study.file, cells, study.scale)
    result = to_jsonable(result_of(study_runs, cells, judged))
    write_json(out / _RESULT, result)  # the first file: it marks the folder as ours
    write_bytes(out / "result.md", markdown_of(study, result).encode())
    figures = out / "figures"
    figures.mkdir(exist_ok=True)
    draw_probes(figures, drawings)
    draw_overview(figures / "overview.png", study, result)
    _write_pages(out, figures, study_runs, command)
    return StudyOutcome(study, result, judged, out)


def _write_pages(out: Path, figures: Path, study_runs: StudyRuns, command: str | None) -> None:
    """Write one report page per case, and its charts as PNG."""
    for case, runs in study_runs.runs.items():
        single = len(study_runs.runs) == 1
        write_page(out / ("report.html" if single else f"report-{slug(case)}.html"), runs,
                   command=command)  # fmt: skip
        labelled = study_runs.labelled(case)
        density = density_chart(labelled)
        charts = (*all_charts(labelled), time_chart(labelled))
        drawings = [(chart, labelled.methods) for chart in charts if chart.kind in _PRINTED_KINDS]
        if density is not None:
            drawings.append((density, ["training", "validation"]))
        for chart, names in drawings:
            name = chart.name if single else f"{slug(case)}-{chart.name}"
            draw_chart(chart, names).savefig(figures / f"{name}.png", dpi=_DPI)


def slug(text: str) -> str:
    """Return a text as a file name."""
    return path_name(re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or text)
