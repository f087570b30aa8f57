"""Temporary files that killed processes leave behind, and their removal at the next start.

A temporary file or folder is named ``.NAME.PID``: the name that it gets when it is complete, and
the process that writes it. Nothing else is removed.
"""

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from unskew.runs.file_names import (
    CLIENTS,
    MANIFEST,
    METRICS,
    RUN,
    SAMPLE_WEIGHTS_FILE,
    SERVER_FILES,
)

ACCEPTED = "accepted.safetensors"
"""Its file of the sizes of what was accepted; earlier versions wrote none."""

TUNED = "tuned.safetensors"
"""Its file of what fine-tuning changed in personal models, at the end of a run."""

CHECKPOINT_FILES = (
    "server.safetensors", "clients.safetensors", ACCEPTED, TUNED, "position.json"
)  # fmt: skip
"""The files of one checkpoint."""

CHECKPOINT = re.compile(r"stage\d+-round\d{6,}")
STATE_FILE = re.compile(r"\d{8,}\.safetensors")
"""The names of a checkpoint's folder, and of a file of client states."""

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)")
_FILES = {RUN, METRICS, CLIENTS, MANIFEST, SAMPLE_WEIGHTS_FILE, *SERVER_FILES}


def temporary_path(path: Path) -> Path:
    """Return the name that a file or folder has until it is complete."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def is_leftover(path: Path) -> bool:
    """Return whether a path in a run's folder is what an interrupted write left."""
    match = _TEMPORARY.fullmatch(path.name)
    if match is None or path.is_symlink():
        return False
    name = match["name"]
    if path.is_dir():
        return bool(CHECKPOINT.fullmatch(name)) and _holds_only(path, CHECKPOINT_FILES)
    return path.is_file() and (name in _FILES or bool(STATE_FILE.fullmatch(name)))


def remove_leftovers(folder: Path) -> None:
    """Remove what interrupted writes left in a folder, which no other process may be using."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if is_leftover(path):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def remove_dead_writes(folder: Path, names: Iterable[str]) -> None:
    """Remove temporary files of these names, unless the process that writes them is alive."""
    known = set(names)
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _TEMPORARY.fullmatch(path.name)
        if match and match["name"] in known and path.is_file() and not is_alive(int(match["pid"])):
            path.unlink(missing_ok=True)


def remove_checkpoint(folder: Path) -> bool:
    """Remove the files of a checkpoint and its folder; return whether nothing is left of it.

    A folder that holds anything else keeps it.
    """
    if folder.is_symlink() or not folder.is_dir():
        return not folder.exists()
    for name in CHECKPOINT_FILES:
        (folder / name).unlink(missing_ok=True)
    remove_leftovers(folder)
    try:
        folder.rmdir()
    except OSError:  # it holds a file that is not ours
        return False
    return True


def is_alive(pid: int) -> bool:
    """Return whether a process of this machine is running."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is another user's
        return True
    return True


def _holds_only(folder: Path, names: Iterable[str]) -> bool:
    return {each.name for each in folder.iterdir()} <= set(names)
