"""The search for runs and comparisons below a folder."""

import os
from pathlib import Path

from unskew.errors import UnskewError
from unskew.runs.file_names import CHECKPOINTS, RUN

MAX_FOLDERS = 10_000
"""The largest number of folders that are searched: a whole disk would take minutes."""


def folders_with(path: Path, name: str) -> list[Path]:
    """Return the folders at or below a path that hold a file of this name, sorted.

    Hidden folders, links and the checkpoints of runs are not searched.
    """
    if not path.is_dir():
        raise UnskewError(f"{path}: there is no such folder")
    found = []
    for number, (folder, inner, files) in enumerate(os.walk(path)):
        if number == MAX_FOLDERS:
            raise UnskewError(
                f"{path}: more than {MAX_FOLDERS:,} folders are below it, too many to search for "
                "runs; name a folder that is closer to them"
            )
        is_run = RUN in files
        inner[:] = [each for each in inner if not _is_skipped(each, in_run=is_run)]
        if name in files:
            found.append(Path(folder))
    return sorted(found)


def _is_skipped(name: str, *, in_run: bool) -> bool:
    return name.startswith(".") or (in_run and name == CHECKPOINTS)
