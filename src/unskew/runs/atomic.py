"""Atomic file writes: after a crash a file has either the old or the new content."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from unskew.runs.leftovers import temporary_path


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_bytes(path, (json.dumps(value, indent=1) + "\n").encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: to a temporary file in the same folder, which is then renamed.

    The target of a link is replaced, not the link, and anything but a regular file, such as a
    pipe, is written to directly.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    temporary = temporary_path(path)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Flush a file's content to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Flush a folder's entries (such as renames) to the disk, on systems that support it."""
    if os.name == "posix":
        sync_file(path)


def sha256(path: Path) -> str:
    """Return the SHA-256 hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
