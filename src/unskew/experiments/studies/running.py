"""Running a study from its file to its folder of results."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unskew.experiments.studies.charts import density_picture, time_picture
from unskew.experiments.studies.claims import Judged, judge_claims
from unskew.experiments.studies.overview import draw_overview
from unskew.experiments.studies.probing import probe_study
from unskew.experiments.studies.result import markdown_of, result_of
from unskew.experiments.studies.scheduler import StudyRuns, run_study_cases
from unskew.experiments.studies.study import Study
from unskew.experiments.studies.values import cells_of
from unskew.report.charts import all_charts
from unskew.report.draw import draw_picture
from unskew.report.page import write_page
from unskew.runs.atomic import write_bytes, write_json
from unskew.utils.jsonable import to_jsonable

_DPI = 110
_DRAWN = ("curves", "boxes", "bars", "bubbles", "histograms")
"""The kinds of pictures that papers print; the pages have the others too."""


@dataclass(frozen=True)
class Outcome:
    """What a study came to, and the folder it is written to."""

    study: Study
    result: dict[str, Any]
    judged: Sequence[Judged]
    folder: Path


def run_study(
    study: Study,
    out: str | Path,
    *,
    resume: bool = True,
    jobs: int | None = None,
    progress: bool | None = None,
    command: str | None = None,
) -> Outcome:
    """Play a study and write result.json, result.md, figures and pages into a folder.

    Runs are kept in ``runs`` beside the folder, by content, so that studies share them.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    cache = out.parent / "runs"
    played = run_study_cases(study, cache, resume=resume, jobs=jobs, progress=progress)
    cells = cells_of(played)
    figures = out / "figures"
    for case, found in probe_study(study, cache / "probes", figures).items():
        for label, measures in found.items():
            cells.setdefault(case, {}).setdefault(label, {}).update(measures)
    judged = judge_claims(study.file, cells, study.scale)
    result = to_jsonable(result_of(played, cells, judged))
    write_json(out / "result.json", result)
    write_bytes(out / "result.md", markdown_of(study, result).encode())
    figures.mkdir(exist_ok=True)
    draw_overview(figures / "overview.png", study, result)
    _write_pages(out, figures, played, command)
    return Outcome(study, result, judged, out)


def _write_pages(out: Path, figures: Path, played: StudyRuns, command: str | None) -> None:
    """Write a report's page for every case, and its pictures as PNG."""
    for case, runs in played.runs.items():
        alone = len(played.runs) == 1
        write_page(out / ("report.html" if alone else f"report-{slug(case)}.html"), runs,
                   command=command)  # fmt: skip
        named = played.labelled(case)
        density = density_picture(named)
        charts = (*all_charts(named), time_picture(named))
        drawings = [(one, named.methods) for one in charts if one.kind in _DRAWN]
        if density is not None:
            drawings.append((density, ["training", "validation"]))
        for chart, names in drawings:
            name = chart.name if alone else f"{slug(case)}-{chart.name}"
            draw_picture(chart, names).savefig(figures / f"{name}.png", dpi=_DPI)


def slug(text: str) -> str:
    """Return a text as a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
