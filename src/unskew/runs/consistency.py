"""Check that the runs of one table have the same settings and data."""

from typing import Any

from unskew.runs.run import Run
from unskew.runs.runs import Runs

_SETTINGS = (
    "rounds",
    "participation",
    "cohort",
    "epochs",
    "steps",
    "batch_size",
    "attack",
    "precision",
)

_OTHER_DATA = ("central", "data-sharing")
"""Baselines that train on other data than the clients' by design."""


def differences(runs: Runs) -> dict[str, list[str]]:
    """Return the settings that differ between runs, each with its values; empty if none does."""
    requested = [_requested(run) for run in runs if run.method.partition(":")[0] not in _OTHER_DATA]
    found = {}
    for name in requested[0] if requested else ():
        values = list(dict.fromkeys(str(each.get(name)) for each in requested))
        if len(values) > 1:
            found[name] = values
    return found


def _requested(run: Run) -> dict[str, Any]:
    data, settings = run.metadata.get("data", {}), run.metadata.get("configuration", {})
    return {
        "data": run.data,
        "skew": data.get("skew"),
        "data options": data.get("options") or {},
        "clients": run.clients,
        "network": run.network,
        **{name: settings.get(name) for name in _SETTINGS},
    }
