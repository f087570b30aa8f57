"""A lock, so that only one process at a time writes a run into its folder."""

import os
from pathlib import Path

from unskew.errors import FolderError

try:
    import fcntl
except ImportError:  # Windows: two processes in one folder are not detected there
    fcntl = None  # type: ignore[assignment]

_HELD: set[int] = set()


def _release_in_child() -> None:
    """Close inherited locks in a forked process, so that it does not lock its parent's folders."""
    while _HELD:
        os.close(_HELD.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


class FolderLock:
    """A lock on a folder, held from creation to :meth:`release` or to the end of the process."""

    def __init__(self, folder: Path) -> None:
        self._descriptor: int | None = None
        if fcntl is None:
            return
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise FolderError(
                f"{folder}: another process is executing this run; wait for it, or choose another "
                "folder"
            ) from None
        except OSError:  # a file system without locks
            os.close(descriptor)
            return
        self._descriptor = descriptor
        _HELD.add(descriptor)

    def release(self) -> None:
        """Release the lock; repeated calls have no effect."""
        if self._descriptor is not None and self._descriptor in _HELD:
            _HELD.discard(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = None

    def __del__(self) -> None:
        """Release the lock of a run that was abandoned without closing its folder."""
        self.release()
