"""The index of committed results: every study, every claim, and what became of it."""

import json
from pathlib import Path
from typing import Any

from unskew.errors import UnskewError
from unskew.experiments.studies.library import study_names
from unskew.experiments.studies.result import left_aligned
from unskew.experiments.studies.study import PAPERS
from unskew.runs.atomic import write_bytes
from unskew.utils.tables import Table

_WORDS = ("held", "not held", "within noise", "not testable at this scale")


def write_index(folder: Path) -> tuple[Path, int]:
    """Write README.md from the result.json files below a folder; return it and their number."""
    results = [_read(path) for path in sorted(folder.glob("*/result.json"))]
    if not results:
        raise UnskewError(f"{folder}: there is no result.json in a folder below it")
    path = folder / "README.md"
    write_bytes(path, index_text(results, folder).encode())
    return path, len(results)


def index_text(results: list[dict[str, Any]], folder: Path) -> str:
    """Return the index of a folder: a line a study, then each claim with its verdict."""
    is_there = (folder / "../studies.md").is_file()
    lines = [
        "# Results of the studies",
        "",
        f"Written by `unskew study index {folder.as_posix()}` from the result.json files here"
        + ("; see [how studies work](../studies.md). " if is_there else ". ")
        + "A claim is judged by a paired t-test over seeds, "
        "corrected for the number of rivals; most results are of the scale `cpu`, whose changes "
        "each page states.",
        "",
        _counts(results).to_markdown(),
    ]
    there = {result["study"] for result in results}
    lacking = [name for name in study_names() if name not in there]
    if lacking:
        lines += ["", f"No result is kept yet of: {', '.join(lacking)}."]
    for paper, title in PAPERS.items():
        own = [result for result in results if result["paper"] == paper]
        if own:
            lines += ["", f"## {title}", "", left_aligned(_claims(own))]
    return "\n".join([*lines, ""])


def _counts(results: list[dict[str, Any]]) -> Table:
    rows = []
    for result in results:
        words = [claim["verdict"] for claim in result["claims"]]
        rows.append(
            [
                f"[{result['study']}]({result['study']}/result.md)",
                ", ".join(result["makes"]),
                result["scale"],
                str(result["seeds"]),
                *(str(words.count(word)) for word in _WORDS),
            ]
        )
    return Table(["study", "makes", "scale", "seeds", *_WORDS], rows)


def _claims(results: list[dict[str, Any]]) -> Table:
    rows = [
        [result["study"], claim["text"], f"**{claim['verdict']}**", claim["by"]]
        for result in results
        for claim in result["claims"]
    ]
    return Table(["study", "the paper says", "verdict", "measured (positive is better)"], rows)


def _read(path: Path) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise UnskewError(f"{path}: is not JSON; run the study again") from None
    return result
