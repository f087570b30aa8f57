"""Read runs from their folders."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unskew.errors import UnskewError
from unskew.runs.file_names import CLIENTS, METRICS, RUN, SAMPLE_WEIGHTS_FILE
from unskew.runs.folder import read_lines
from unskew.runs.run import Run
from unskew.runs.runs import Runs

TUNING = "tuning"
"""The folder of a comparison that contains the trials of its hyperparameter search."""


def read_run(folder: str | Path, *, tables: bool = True) -> Run:
    """Read one run, finished or not, from its folder. It has everything except the model.

    With ``tables=False`` the tables of clients, which are the largest part of a folder, are not
    read.
    """
    folder = Path(folder)
    facts = _read_json(folder / RUN)
    try:
        identity, data = facts["identity"], facts["data"]
        return Run(
            method=identity["method"],
            network=identity["network"],
            data=data["name"],
            seed=identity["settings"]["seed"],
            clients=data["clients"],
            metrics=read_lines(folder / METRICS),
            client_tables=read_lines(folder / CLIENTS) if tables else [],
            folder=folder,
            sample_weights=_read_sample_weights(folder) if tables else None,
            facts=facts,
        )
    except (KeyError, TypeError) as error:
        raise UnskewError(
            f"{folder / 'run.json'}: {error} is missing; was it written by an older unskew? "
            "Run it again"
        ) from None


def read_runs(paths: Iterable[str | Path]) -> Runs:
    """Read runs from folders: folders of runs, or folders with runs somewhere below them."""
    folders = list(dict.fromkeys(folder for path in paths for folder in run_folders(path)))
    runs = [read_run(folder) for folder in folders]
    if not runs:
        raise UnskewError("runs: pass at least one folder")
    duplicate = _first_duplicate((run.method, run.seed) for run in runs)
    if duplicate is not None:
        method, seed = duplicate
        raise UnskewError(
            f"runs: {method} with seed {seed} is listed twice; pass folders of one comparison"
        )
    return Runs(runs)


def run_folders(path: str | Path) -> list[Path]:
    """Return the folders of runs at or below a path, sorted by name.

    The trials of a hyperparameter search are excluded, unless there are no other runs.
    """
    path = Path(path)
    if not path.is_dir():
        raise UnskewError(f"{path}: there is no such folder")
    found = sorted(file.parent for file in path.rglob(RUN))
    if not found:
        raise UnskewError(f"{path}: there is no run in it (a folder with a run.json)")
    return [f for f in found if TUNING not in f.relative_to(path).parts] or found


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnskewError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise UnskewError(f"{path}: is not JSON") from None
    return content


def _read_sample_weights(folder: Path) -> dict[str, Any] | None:
    path = folder / SAMPLE_WEIGHTS_FILE
    return _read_json(path) if path.is_file() else None


def _first_duplicate(keys: Iterable[tuple[str, int]]) -> tuple[str, int] | None:
    seen = set[tuple[str, int]]()
    for key in keys:
        if key in seen:
            return key
        seen.add(key)
    return None
