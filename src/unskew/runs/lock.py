"""A lock, so that only one process at a time writes a run into its folder."""

from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from unskew.errors import FolderError
from unskew.runs.file_names import LOCK


class FolderLock:
    """A lock on a folder, held from creation to :meth:`release` or to the end of the process."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / LOCK
        # Not thread-local: a run that is given up may be collected in another thread. No soft
        # lock: that is a file only, which a killed process would leave behind.
        self._lock = FileLock(
            self._file, blocking=False, thread_local=False, fallback_to_soft=False
        )
        try:
            self._lock.acquire()
        except Timeout:
            raise FolderError(
                f"{folder}: another process is executing this run; wait for it, or choose another "
                "folder"
            ) from None
        except OSError:  # a file system without locks, or a folder that cannot be written
            pass

    def release(self) -> None:
        """Release the lock; repeated calls have no effect."""
        if self._lock.is_locked:
            with suppress(OSError):  # Windows removes the file itself, after the release
                self._file.unlink()
            self._lock.release()

    def __del__(self) -> None:
        """Release the lock of a run that was abandoned without closing its folder."""
        self.release()
