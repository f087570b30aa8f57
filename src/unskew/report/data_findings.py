"""What the check of the data found, as the runs of a comparison recorded it."""

from collections.abc import Mapping
from typing import Any

from unskew.runs.runs import Runs


def data_findings(runs: Runs) -> list[Mapping[str, Any]]:
    """Return the warnings, then the notes, of the first seed that has one about a subject.

    The federations of different seeds have much the same findings, with other numbers.
    """
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for run in runs:
        for finding in run.metadata.get("findings", []):
            found.setdefault((finding["severity"], finding["subject"]), finding)
    return sorted(found.values(), key=lambda finding: finding["severity"] == "note")
