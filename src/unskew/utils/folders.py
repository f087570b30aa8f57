"""Which folders a result may be written to: nothing foreign is overwritten."""

import json
import re
from pathlib import Path

from unskew.errors import FolderError
from unskew.utils.printable import printable


def check_folder(folder: Path, markers: tuple[str, ...], key: str, content: str) -> None:
    """Raise unless a folder is new, empty, or holds an earlier result of the same kind.

    Such a result has one of the ``markers``: a file that is a JSON object with ``key``. What a
    killed process left of writing a marker may be there too. ``content`` names the kind.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise FolderError(f"{folder}: is not a folder; choose another one")
    names = [each.name for each in folder.iterdir() if not _is_unfinished(each, markers)]
    if names and not any(is_object_with(folder / marker, key) for marker in markers):
        raise FolderError(
            f"{folder}: holds {printable(min(names))!r}, but no {content}; choose an empty or a "
            "new folder"
        )


def is_object_with(path: Path, *keys: str) -> bool:
    """Return whether a file holds a JSON object with these keys."""
    try:
        value = json.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and all(key in value for key in keys)


def _is_unfinished(path: Path, markers: tuple[str, ...]) -> bool:
    return any(re.fullmatch(rf"\.{re.escape(name)}\.\d+", path.name) for name in markers)
