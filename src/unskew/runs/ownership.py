"""Which folders a run or a comparison may write to: nothing foreign is overwritten or removed."""

from pathlib import Path

from unskew.errors import FolderError
from unskew.runs.file_names import (
    CHECKPOINTS,
    LOCK,
    MANIFEST,
    NODE_STATES,
    NODES,
    RUN,
    SERVER_FILES,
    SERVER_LOGS,
)
from unskew.runs.leftovers import is_leftover
from unskew.utils.folders import is_object_with

GENERATOR = '<meta name="generator" content="unskew">'
"""The line by which a report page is recognised as one of ours."""

_HEAD_BYTES = 1000


def check_run_folder(path: Path) -> None:
    """Raise unless a folder is new, empty or holds a run.

    A run writes its manifest of checkpoints, which is empty at first, before its ``run.json``. So
    a run with one of the two has lost the other, and starting it again would overwrite it.
    """
    if not path.is_dir():
        return
    names = {entry.name for entry in path.iterdir() if not _may_precede_a_run(entry)}
    has_manifest = (path / CHECKPOINTS / MANIFEST).is_file()
    if not names or (RUN in names and has_manifest):
        return
    if RUN in names:
        raise FolderError(
            f"{path}: holds a {RUN}, but no {CHECKPOINTS}/{MANIFEST}, so it cannot be resumed and "
            "is not overwritten; restore that file, or choose another folder"
        )
    if has_manifest and not _is_interrupted_start(path, names):
        raise FolderError(
            f"{path}: holds checkpoints, but no {RUN}, so it cannot be resumed and is not "
            "overwritten; restore that file, or choose another folder"
        )
    if not has_manifest and not _is_interrupted_start(path, names):
        raise FolderError(
            f"{path}: holds {min(names)!r}, which is not part of a run; choose an empty or a new "
            "folder"
        )


def check_comparison_folder(out: Path, record: str, page: str, tables: tuple[str, ...]) -> None:
    """Raise if the page or the tables of a comparison would overwrite foreign files.

    ``record`` is the file that only the folder of a comparison has. In the folder of a single run,
    a report would take that run for one of the comparison's.
    """
    if (out / RUN).exists():
        raise FolderError(f"{out}: is the folder of a single run; choose another for a comparison")
    if (out / record).exists():
        return
    for name in (page, *tables):
        path = out / name
        if path.exists() and not (name == page and is_report_page(path)):
            raise FolderError(
                f"{path}: exists, but was not written by a comparison, which would overwrite it; "
                "choose another folder"
            )


def _may_precede_a_run(entry: Path) -> bool:
    """Return whether a file may be there before a run starts.

    That is an empty lock, a file or the logs of the server, what nodes keep beside these, or what
    a killed process left of a write. The first file of the server is the list of nodes.
    """
    if entry.name in SERVER_FILES:
        return entry.is_file() and is_object_with(entry.with_name(NODES), "run", "nodes")
    if entry.name == SERVER_LOGS:
        return entry.is_dir() and all(each.suffix == ".log" for each in entry.iterdir())
    if entry.name == NODE_STATES:
        has_nodes = is_object_with(entry.with_name(NODES), "run", "nodes")
        return entry.is_dir() and (has_nodes or entry.with_name(SERVER_LOGS).is_dir())
    if entry.name == LOCK:
        return entry.is_file() and entry.stat().st_size == 0
    return is_leftover(entry)


def _is_interrupted_start(path: Path, names: set[str]) -> bool:
    """Return whether a run was interrupted between its first folder and its first file."""
    if names != {CHECKPOINTS} or not (path / CHECKPOINTS).is_dir():
        return False
    inside = [each for each in (path / CHECKPOINTS).iterdir() if not is_leftover(each)]
    return not inside or (
        [each.name for each in inside] == [MANIFEST] and inside[0].read_bytes().strip() == b"{}"
    )


def is_report_page(path: Path) -> bool:
    """Return whether a file is a report page of ours, which a new one may replace."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return GENERATOR.encode() in file.read(_HEAD_BYTES)
