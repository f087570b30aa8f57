"""Whether runs that stand in one table were asked the same."""

from typing import Any

from unskew.runs.run import Run
from unskew.runs.runs import Runs

_SETTINGS = ("rounds", "participation", "cohort", "epochs", "steps", "batch_size", "attack")

_OTHER_DATA = ("central", "data-sharing")
"""References that train on other data than the clients', which is their point."""


def differences(runs: Runs) -> dict[str, list[str]]:
    """Return what was asked differently, each with the values there are; empty if nothing was."""
    asked = [_asked(run) for run in runs if run.method.partition(":")[0] not in _OTHER_DATA]
    found = {}
    for name in asked[0] if asked else ():
        values = list(dict.fromkeys(str(each.get(name)) for each in asked))
        if len(values) > 1:
            found[name] = values
    return found


def _asked(run: Run) -> dict[str, Any]:
    data, settings = run.facts.get("data", {}), run.facts.get("configuration", {})
    return {
        "data": run.data,
        "skew": data.get("skew"),
        "options of the data": data.get("options") or {},
        "clients": run.clients,
        "network": run.network,
        **{name: settings.get(name) for name in _SETTINGS},
    }
