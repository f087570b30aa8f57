"""What a command shares with its workers, in the folder of its runs."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from unskew.data.federation import Federation
from unskew.errors import FolderError
from unskew.runs.lock import FolderLock, is_locked

SHARED = ".unskew-cluster"
"""A name that is unlikely to exist already, because the folder is removed in the end."""

_COMMANDS = "command-*"


@dataclass(frozen=True)
class SharedFolder:
    """A folder on storage that all workers can read and write."""

    path: Path
    command: Path
    """The folder of one command, which exists as long as the command waits for its runs."""

    def save(self, federation: Federation) -> Path:
        """Save a federation under its hash, unless it is there, and return its folder."""
        folder = self.path / "data" / federation.fingerprint
        if not folder.exists():
            federation.save(self.command / "data")
            folder.parent.mkdir(exist_ok=True)
            with suppress(OSError):  # another command was faster
                (self.command / "data").rename(folder)
            shutil.rmtree(self.command / "data", ignore_errors=True)
        return folder

    def end_command(self) -> None:
        """Remove the command's folder, so that its runs stop at the end of their round."""
        shutil.rmtree(self.command, ignore_errors=True)


@contextmanager
def shared_folder_in(out: Path) -> Iterator[SharedFolder]:
    """Provide a shared folder; its data is removed when all runs are finished.

    After an error or Ctrl-C the data is kept for the remaining runs.
    """
    path = out.resolve() / SHARED
    command = path / _COMMANDS.replace("*", secrets.token_hex(4))
    command.mkdir(parents=True, mode=0o700)
    shared, lock = SharedFolder(path, command), FolderLock(command)
    if not lock.is_held:
        shared.end_command()
        with suppress(OSError):
            path.rmdir()
        raise FolderError(
            f"out: {out} is on a file system without file locks (flock), which keep two machines "
            "from writing the same run; mount it with locks, or choose another folder"
        )
    for other in path.glob(_COMMANDS):
        if not is_locked(other):  # its command was killed: its runs are resumed by this one
            shutil.rmtree(other, ignore_errors=True)
    try:
        yield shared
    finally:
        shared.end_command()
        lock.release()
    if not any(path.glob(_COMMANDS)):
        shutil.rmtree(path / "data", ignore_errors=True)
        with suppress(OSError):
            path.rmdir()
