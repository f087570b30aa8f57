"""The files that a node writes for a run: below its state folder, and nowhere else."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from unskew.flower.wire import Refusal
from unskew.runs.atomic import write_bytes
from unskew.utils.path_names import path_name

_MANIFEST, _LOCK = ".manifest.json", ".lock"
"""Names that no file can be given from outside."""
_PATIENCE = 30.0
"""Seconds to wait for another process that has the lock."""


def default_state() -> Path:
    """Return the state folder of nodes whose config and app name none."""
    return Path(os.environ.get("UNSKEW_STATE") or Path.home() / ".unskew" / "flower")


class NodeFiles:
    """The files in one folder below a node's state folder.

    ``parts`` lead to that folder, such as a run's id and the node's name. They and the names of the
    files may be anything that a server sends. A link below the state folder is refused, since it
    may lead out of it. Only files that the folder's manifest lists are removed; a name is listed
    before its file is written.
    """

    def __init__(self, state: Path, *parts: str) -> None:
        self._root = state.resolve()
        self._folder = self._root.joinpath(*map(path_name, parts))

    def folder(self) -> Path:
        """Return the folder, which exists then; those that are created are only for its owner."""
        self._at("")
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        place = self._root
        for part in self._folder.relative_to(self._root).parts:
            place /= part
            place.mkdir(exist_ok=True, mode=0o700)
        return self._folder

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is none."""
        path = self._at(path_name(name))
        return path.read_bytes() if path.is_file() else None

    @contextmanager
    def locked(self, what: str) -> Iterator[None]:
        """Keep other processes out: Flower starts one per message. ``what`` is for the refusal."""
        self.folder()
        path = self._at(_LOCK)
        lock = FileLock(path, timeout=_PATIENCE, thread_local=False, fallback_to_soft=False)
        try:
            lock.acquire()
        except (Timeout, OSError, NotImplementedError) as error:
            raise Refusal(f"{what} cannot be locked ({type(error).__name__})") from None
        try:
            yield
        finally:
            lock.release()

    def write(self, name: str, content: bytes) -> Path:
        """Write a file atomically, readable only by its owner, and return its path."""
        self.folder()
        path = self._at(path_name(name))
        written = self.written()
        if path.name not in written:
            self._list({*written, path.name})
        write_bytes(path, content)
        return path

    def append(self, name: str, content: bytes) -> None:
        """Append to a file that is never removed, and wait until it is on the disk."""
        path = self._at(path_name(name))
        self.folder()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with os.fdopen(os.open(path, flags, 0o600), "ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, except for those that this class has not written."""
        written = self.written()
        listed = {path_name(name) for name in names} & written
        for name in listed:
            self._at(name).unlink(missing_ok=True)
        if listed:
            self._list(written - listed)

    def written(self) -> set[str]:
        """Return the files that the manifest lists."""
        manifest = self._at(_MANIFEST)
        try:
            names = json.loads(manifest.read_bytes()) if manifest.is_file() else []
        except (ValueError, RecursionError):
            names = []
        return {name for name in names if isinstance(name, str)} if type(names) is list else set()

    def _at(self, safe_name: str) -> Path:
        """Return the path of a file; refuse if a link is in the way."""
        path = self._folder / safe_name
        for place in (path, *path.parents):
            if place == self._root:
                return path
            if place.is_symlink():
                raise Refusal("a link in its state folder leads elsewhere; it writes no state")
        raise Refusal("its state folder was moved")

    def _list(self, names: set[str]) -> None:
        write_bytes(self._at(_MANIFEST), json.dumps(sorted(names)).encode())
