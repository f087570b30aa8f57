"""The files written next to the runs of a comparison, which later reports read."""

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
class ComparisonFacts:
    """The command, target and methods stored in a comparison's folder, if any."""

    command: str | None = None
    target: float | None = None
    methods: tuple[str, ...] = ()

    def sorted(self, runs: Runs) -> Runs:
        """Return runs in the order of the comparison, so that methods keep their colours."""
        order = {method: index for index, method in enumerate(self.methods)}
        return Runs(sorted(runs, key=lambda run: order.get(run.method, len(order))))


def read_comparison(out: str | Path) -> ComparisonFacts:
    """Return the facts stored in a comparison's folder; empty if there are none."""
    try:
        facts = json.loads((Path(out) / _FACTS).read_text(encoding="utf-8"))
        return ComparisonFacts(facts["command"], facts["target"], tuple(facts["methods"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ComparisonFacts()
