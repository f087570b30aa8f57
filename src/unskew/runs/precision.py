"""The precision that runs were trained in, which tables and verdicts report if it differs."""

from collections.abc import Iterable

from unskew.runs.run import Run
from unskew.utils.wording import joined

_DEFAULT = "float32"
"""The precision of runs whose ``run.json`` names none."""


def precisions_text(runs: Iterable[Run]) -> str | None:
    """Return a note if runs were trained in different precisions."""
    methods: dict[str, dict[str, None]] = {}
    for run in runs:
        recorded = run.metadata.get("configuration", {}).get("precision")
        methods.setdefault(str(recorded or _DEFAULT), {})[run.method] = None
    if len(methods) < 2:
        return None
    texts = [f"{precision} for {joined(list(names))}" for precision, names in methods.items()]
    return f"Precision differs, so methods are not compared on equal terms: {', '.join(texts)}."
