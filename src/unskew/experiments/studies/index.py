"""The index of committed results: every study and the verdict on every claim."""

import shlex
from pathlib import Path
from typing import Any, get_args

from unskew.errors import FolderError, UnskewError
from unskew.experiments.studies.claims import ClaimVerdict
from unskew.experiments.studies.kept_results import read_result
from unskew.experiments.studies.library import study_names
from unskew.experiments.studies.result import left_aligned
from unskew.experiments.studies.study import PAPERS
from unskew.runs.atomic import write_bytes
from unskew.utils.tables import Table

_TITLE = "# Results of the studies"
_VERDICTS = get_args(ClaimVerdict)


def write_index(folder: Path) -> tuple[Path, int]:
    """Write README.md from the result.json files below a folder; return it and their number."""
    results = [read_result(path) for path in sorted(folder.glob("*/result.json"))]
    if not results:
        raise UnskewError(f"{folder}: no folder in it has a result.json; run a study first")
    path = folder / "README.md"
    if path.exists() and not (path.is_file() and path.read_bytes().startswith(_TITLE.encode())):
        raise FolderError(
            f"{path}: exists, but is not an index of studies, which would overwrite it; move it"
        )
    write_bytes(path, index_text(results, folder).encode())
    return path, len(results)


def index_text(results: list[dict[str, Any]], folder: Path) -> str:
    """Return the index of a folder: one line per study, then each claim with its verdict."""
    has_docs = (folder / "../studies.md").is_file()
    command = shlex.join(["unskew", "study", "index", folder.as_posix()])
    lines = [
        _TITLE,
        "",
        f"Written by `{command}` from the result.json files here"
        + ("; see [how studies work](../studies.md). " if has_docs else ". ")
        + "A claim is judged by the test of comparisons, "
        "corrected for the number of rivals; a single rival is judged by a paired t-test. Each "
        "page lists how its scale differs from the paper's setting.",
        "",
        left_aligned(_counts(results)),
    ]
    present = {result["study"] for result in results}
    missing = [name for name in study_names() if name not in present]
    if missing:
        lines += ["", f"Studies without a result: {', '.join(missing)}."]
    for paper, title in PAPERS.items():
        of_paper = [result for result in results if result["paper"] == paper]
        if of_paper:
            lines += ["", f"## {title}", "", left_aligned(_claims(of_paper))]
    return "\n".join([*lines, ""])


def _counts(results: list[dict[str, Any]]) -> Table:
    found = {claim["verdict"] for result in results for claim in result["claims"]}
    shown = [verdict for verdict in _VERDICTS if verdict in found]
    rows = []
    for result in results:
        verdicts = [claim["verdict"] for claim in result["claims"]]
        rows.append(
            [
                f"[{result['study']}]({result['study']}/result.md)",
                ", ".join(result["reproduces"]),
                result["scale"],
                str(result["seeds"]),
                *(str(verdicts.count(verdict)) for verdict in shown),
            ]
        )
    return Table(["study", "reproduces", "scale", "seeds", *shown], rows)


def _claims(results: list[dict[str, Any]]) -> Table:
    rows = [
        [result["study"], claim["text"], f"**{claim['verdict']}**", claim["evidence"]]
        for result in results
        for claim in result["claims"]
    ]
    return Table(["study", "claim of the paper", "verdict", "measured (positive is better)"], rows)
