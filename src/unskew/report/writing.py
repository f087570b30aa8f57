"""Everything that is written beside the runs of a comparison, and read back for a new report."""

import json
from dataclasses import dataclass
from pathlib import Path

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
    write_json(out / _FACTS, {"command": command, "target": target, "methods": runs.methods})
    export_table(out, runs, target=target)
    return write_page(out / PAGE, runs, target=target, command=command)


@dataclass(frozen=True)
class Known:
    """What a comparison's folder says of itself, as far as it does."""

    command: str | None = None
    target: float | None = None
    methods: tuple[str, ...] = ()

    def sorted(self, runs: Runs) -> Runs:
        """Return runs in the order of the comparison, so that methods keep their colours."""
        places = {method: place for place, method in enumerate(self.methods)}
        return Runs(sorted(runs, key=lambda run: places.get(run.method, len(places))))


def read_comparison(out: str | Path) -> Known:
    """Return what a comparison's folder says of itself."""
    try:
        facts = json.loads((Path(out) / _FACTS).read_text(encoding="utf-8"))
        return Known(facts["command"], facts["target"], tuple(facts["methods"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Known()
