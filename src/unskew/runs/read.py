"""Read runs from their folders."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unskew.errors import UnskewError
from unskew.runs.checkpoint import StatesInFolder
from unskew.runs.client_tables import ClientTables
from unskew.runs.file_names import CLIENTS, METRICS, RUN, SAMPLE_WEIGHTS_FILE
from unskew.runs.find_folders import folders_with
from unskew.runs.folder import read_lines
from unskew.runs.json_files import read_json_object
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.runs.schema import check_metadata, check_row, check_sample_weights, check_table

TUNING = "tuning"
"""The folder of a comparison that contains the trials of its hyperparameter search."""


def read_run(folder: str | Path, *, tables: bool = True) -> Run:
    """Read one run, finished or not, from its folder. It has everything except the model.

    The states of clients are read when they are used.

    The tables of clients, which are the largest part of a folder, are checked here and read again
    when they are used; with ``tables=False`` there are none.
    """
    folder = Path(folder)
    metadata = read_json_object(folder / RUN, verbatim="preprocessing")
    check_metadata(metadata, folder / RUN)
    identity, data = metadata["identity"], metadata["data"]
    run = Run(
        method=identity["method"],
        network=identity["network"],
        data=data["name"],
        seed=identity["settings"]["seed"],
        clients=data["clients"],
        metrics=read_lines(folder / METRICS),
        client_tables=ClientTables(folder / CLIENTS) if tables else [],
        folder=folder,
        states=StatesInFolder(folder),
        sample_weights=_read_sample_weights(folder) if tables else None,
        metadata=metadata,
    )
    for row in run.metrics:
        check_row(row, folder / METRICS)
    for table in run.client_tables:
        check_table(table, run.clients, folder / CLIENTS)
    return run


def read_runs(paths: str | Path | Iterable[str | Path], *, tables: bool = True) -> Runs:
    """Read runs from one or more folders, each of a run or with runs somewhere below it.

    ``tables`` is that of :func:`read_run`.
    """
    if isinstance(paths, str | Path):
        paths = [paths]
    folders = list(dict.fromkeys(folder for path in paths for folder in run_folders(path)))
    if not folders:
        raise UnskewError("runs: pass at least one folder")
    runs: dict[tuple[str, int], Run] = {}
    for folder in folders:
        run = read_run(folder, tables=tables)
        if (run.method, run.seed) in runs:
            raise UnskewError(
                f"runs: {run.method} with seed {run.seed} is listed twice; pass folders of one "
                "comparison"
            )
        runs[run.method, run.seed] = run
    return Runs(runs.values())


def run_folders(path: str | Path) -> list[Path]:
    """Return the folders of runs at or below a path, sorted by name.

    The trials of a hyperparameter search are excluded, unless there are no other runs.
    """
    path = Path(path)
    found = folders_with(path, RUN)
    if not found:
        raise UnskewError(f"{path}: there is no run in it (a folder with a run.json)")
    return [f for f in found if TUNING not in f.relative_to(path).parts] or found


def _read_sample_weights(folder: Path) -> dict[str, Any] | None:
    path = folder / SAMPLE_WEIGHTS_FILE
    if not path.is_file():
        return None
    table = read_json_object(path)
    check_sample_weights(table, path)
    return table
