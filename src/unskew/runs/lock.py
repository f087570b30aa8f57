"""A lock, so that only one process at a time writes a run into its folder."""

from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from unskew.errors import FolderLockedError
from unskew.runs.file_names import LOCK

_PATIENCE = 0.2
"""Seconds to wait for a lock, in case somebody is only looking whether it is held."""


def is_locked(folder: Path) -> bool:
    """Return whether a process is writing a run into a folder.

    A run removes its lock file at the end; that of a killed process remains, but is not locked.
    """
    path = folder / LOCK
    if not path.is_file():
        return False
    lock = FileLock(path, blocking=False, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        return True
    except OSError:  # a file system without locks, or a folder of another user
        return True
    lock.release()
    return False


class FolderLock:
    """A lock on a folder, held from creation to :meth:`release` or to the end of the process."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / LOCK
        # Not thread-local: a run that is given up may be collected in another thread. No soft
        # lock: that is a file only, which a killed process would leave behind.
        self._lock = FileLock(
            self._file, timeout=_PATIENCE, thread_local=False, fallback_to_soft=False
        )
        try:
            self._lock.acquire(poll_interval=_PATIENCE / 10)
        except Timeout:
            raise FolderLockedError(
                f"{folder}: another process is executing this run; wait for it, or choose another "
                "folder"
            ) from None
        except OSError:  # a file system without locks, or a folder that cannot be written
            pass

    @property
    def is_held(self) -> bool:
        """Whether the folder is locked; without it, nothing keeps others from writing there."""
        return bool(self._lock.is_locked)

    def release(self) -> None:
        """Release the lock; repeated calls have no effect."""
        if self.is_held:
            with suppress(OSError):  # Windows removes the file itself, after the release
                self._file.unlink()
            self._lock.release()

    def __del__(self) -> None:
        """Release the lock of a run that was abandoned without closing its folder."""
        self.release()
