"""How to reproduce a comparison: settings, versions, and Python code."""

import re
from collections.abc import Mapping
from typing import Any

from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.methods import make_method, names_files
from unskew.report.tuning_table import recorded_searches
from unskew.runs.runs import Runs
from unskew.stats.formulas import FORMULAS
from unskew.stats.judging import MARGIN
from unskew.stats.metric import POOLED

_DATA_FIELDS = ("skew", "samples", "clients", "train", "test", "common")

_LOAD_OPTIONS = {"holdout", "pool", "common", "samples"}

_IRRELEVANT = ("seed", "workers", "checkpoint_seconds", "runner")
"""Settings that do not affect results, or that a comparison sets itself."""


def configuration(runs: Runs) -> dict[str, str]:
    """Return settings, data and versions as text, by name."""
    metadata = runs[0].metadata
    data, settings = metadata.get("data", {}), metadata.get("configuration", {})
    rows = {
        "methods": ", ".join(runs.methods),
        "seeds": ", ".join(str(seed) for seed in sorted({run.seed for run in runs})),
        "network": runs[0].network,
        "data": runs[0].data,
        **{k: data[k] for k in _DATA_FIELDS if k in data},
        **{key: value for key, value in settings.items() if key not in ("seed", "lr")},
        "lr": ", ".join(dict.fromkeys(f"{runs.learning_rate(m):g}" for m in runs.methods)),
        **{f"version of {name}": value for name, value in metadata.get("versions", {}).items()},
    }
    shown = {key: value for key, value in rows.items() if value not in (None, [])}
    return {key.replace("_", " "): _text(value) for key, value in shown.items()}


def python_text(runs: Runs, command: str | None = None) -> str | None:
    """Return Python code that repeats these runs; None if what they recorded does not say how.

    It has placeholders for custom objects, but not for data that a shell command names.
    """
    first, federation = runs[0], _federation(runs, placeholder=command is None)
    if federation is None or not _alike(runs):
        return None
    waves = runs.waves
    seeds = sorted({run.seed for run in runs}) if waves is None else waves.seeds[0]
    methods, settings = runs.methods, _changed(first.metadata.get("configuration", {}))
    found = recorded_searches(runs)
    if found:
        methods = [search.get("given", search["requested"]) for search in found.values()]
        search = next(iter(found.values()))
        searched = {"lr", "clip"} if search["clips"] else {"lr"}
        settings = {key: value for key, value in settings.items() if key not in searched}
        settings |= {"tune": _tune(search)}
    network = "your_network" if first.metadata.get("custom_network") else repr(first.network)
    arguments = [f"[{', '.join(map(_method, methods))}]", f"seeds={seeds}", f"model={network}"]
    settings |= _judging(runs)
    if "metrics" in settings:
        settings["metrics"] = _Code(f"[{', '.join(map(_metric, settings['metrics']))}]")
    if "metric" in settings:
        settings["metric"] = _Code(_metric(settings["metric"]))
    arguments += [f"{k}={v!r}" for k, v in settings.items()]
    return (
        "import unskew as us\n\n"
        f"{federation}\n"
        f"runs = us.compare(federation, {', '.join(arguments)})\n"
        "print(runs.table())"
    )


def _judging(runs: Runs) -> dict[str, Any]:
    """Return the arguments of a comparison that say how it is judged."""
    found: dict[str, Any] = {}
    if runs.final != "mean":
        found["final"] = runs.final
    if runs.margin != MARGIN:
        found["margin"] = runs.margin
    if runs.level != runs.default_level:
        found["level"] = runs.level
    if runs.waves is not None:
        best = {"best": True} if runs.waves.best else {}
        found["decide"] = {"max_seeds": runs.waves.seeds[-1], **best}
    return found


def _tune(search: Mapping[str, Any]) -> dict[str, Any]:
    clip = {"clip": search["clips"]} if search["clips"] else {}
    options = {
        "budget": search["budget"],
        "rounds": search["rounds"],
        "seeds": len(search["seeds"]),
    }
    return {"lr": search["lr"], **clip, **options}


def _method(name: str) -> str:
    if names_files(name):
        return repr(name)  # these files are not imported: the name comes from a run folder
    try:
        make_method(name)
    except UnskewError:
        return f"your_method_{re.split('[^A-Za-z0-9_]', name)[0]}"
    return repr(name)


class _Code(str):
    """A text that is code, not a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _metric(name: str) -> str:
    """Return a metric's name, or a placeholder for a function of the user."""
    known = name.removeprefix(POOLED).partition(":")[0]
    is_known = known in (*FORMULAS, "accuracy", "loss")
    return repr(name) if is_known else re.sub(r"\W", "_", f"your_metric_{name}")


def _alike(runs: Runs) -> bool:
    """Return whether all runs have the settings of the first, but for those that are searched."""
    searched = {"lr", "clip"} if recorded_searches(runs) else set()
    changed = [_changed(run.metadata.get("configuration", {})) for run in runs]
    kept = [{key: each[key] for key in each.keys() - searched} for each in changed]
    return all(each == kept[0] for each in kept)


def _federation(runs: Runs, *, placeholder: bool) -> str | None:
    """Return code that loads the samples of the runs, or has a placeholder for them if allowed."""
    name, data = runs[0].data, runs[0].metadata.get("data", {})
    if data.get("skew") is None:
        shared = len({run.metadata.get("identity", {}).get("data") for run in runs}) == 1
        known = placeholder and shared
        return "federation = your_federation  # the data of these runs" if known else None
    if data.get("cut"):
        return None
    options = data.get("options") or {"samples": data.get("samples")}
    if not options.keys() <= _LOAD_OPTIONS:
        return None
    more = "".join(f", {key}={value!r}" for key, value in options.items() if value is not None)
    loaded = f"us.load({name!r}, {data['skew']!r}, {data['clients']}, seed{more})"
    seeds = {(run.metadata.get("data", {}).get("seed"), run.seed) for run in runs}
    partition_seeds = {seed for seed, _ in seeds}
    if all(seed in (None, of_run) for seed, of_run in seeds):
        return f"def federation(seed):\n    return {loaded}\n"
    if len(partition_seeds) == 1:
        seed = partition_seeds.pop()
        return f"seed = {seed}  # one partition for all runs\nfederation = {loaded}"
    return None


def _changed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from their defaults."""
    defaults = Settings().model_dump()
    return {
        key: value
        for key, value in settings.items()
        if key in defaults and key not in _IRRELEVANT and value != defaults[key]
    }


def _text(value: object) -> str:
    return f"{value:,}" if type(value) is int else str(value)
