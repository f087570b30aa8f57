"""Everything that is written beside the runs of a comparison, and read back for a new report."""

import json
from pathlib import Path
from typing import Any

from unskew.report.export import export_table
from unskew.report.page import write_page
from unskew.runs.atomic import write_json
from unskew.runs.runs import Runs

PAGE = "report.html"
_FACTS = "comparison.json"


def write_comparison(
    out: str | Path, runs: Runs, *, target: float | None = None, command: str | None = None
) -> Path:
    """Write the page and the tables of a comparison into its folder; return the page."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / _FACTS, {"command": command, "target": target})
    export_table(out, runs, target=target)
    return write_page(out / PAGE, runs, target=target, command=command)


def read_comparison(out: str | Path) -> dict[str, Any]:
    """Return the command and the target of a comparison's folder, as far as they are known."""
    try:
        facts = json.loads((Path(out) / _FACTS).read_text(encoding="utf-8"))
        return {"command": facts.get("command"), "target": facts.get("target")}
    except (OSError, ValueError, AttributeError):
        return {"command": None, "target": None}
