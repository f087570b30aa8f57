"""A study as text, before it is run."""

from collections.abc import Sequence
from typing import Any

from unskew.experiments.studies.measure_registry import measure_of
from unskew.experiments.studies.result import settings_table
from unskew.experiments.studies.study import PAPERS, Study


def study_json(study: Study) -> dict[str, Any]:
    """Return a study at a scale as plain values."""
    return {
        "name": study.name,
        "title": study.file.title,
        "paper": PAPERS[study.file.paper],
        "reproduces": study.file.reproduces,
        "seeds": study.seeds,
        "changes": study.changes,
        "measures": study.file.measures,
        "probes": study.file.probes,
        "cases": [case.model_dump(exclude_none=True) for case in study.cases],
        "claims": [claim.model_dump(exclude_none=True) for claim in study.file.claims],
    }


def study_text(studies: Sequence[Study]) -> str:
    """Return a readable description of a study at the given scales."""
    file = studies[0].file
    lines = [file.title, f"{', '.join(file.reproduces)} of: {PAPERS[file.paper]}"]
    if file.note:
        lines += ["", file.note.strip()]
    lines += ["", "measures:", *(f"  {m}: {measure_of(m).title}" for m in file.measures)]
    lines += ["", "methods:", *(f"  {k}: {v}" for k, v in studies[0].cases[0].methods.items())]
    lines += ["", "claims:", *(f"  - {claim.text}" for claim in file.claims)]
    for study in studies:
        lines += ["", f"scale {study.scale}, {study.seeds} seeds; changes: {study.changes.strip()}"]
        lines.append(str(settings_table(study.cases)))
    return "\n".join(lines)
