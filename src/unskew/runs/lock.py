"""One process at a time plays a run into its folder."""

import os
from pathlib import Path

from unskew.errors import FolderError

try:
    import fcntl
except ImportError:  # Windows: two processes in one folder are not noticed there
    fcntl = None  # type: ignore[assignment]

_HELD: set[int] = set()


def _let_go_in_child() -> None:
    """Close what a forked process inherits: else it would hold on to its parent's folders."""
    while _HELD:
        os.close(_HELD.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)


class FolderLock:
    """Held from its making to :meth:`release`, or to the end of the process, however it ends."""

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
                f"{folder}: another process is playing this run; wait for it, or choose another "
                "folder"
            ) from None
        except OSError:  # a file system without locks
            os.close(descriptor)
            return
        self._descriptor = descriptor
        _HELD.add(descriptor)

    def release(self) -> None:
        """Let others in; more than once does no harm."""
        if self._descriptor is not None and self._descriptor in _HELD:
            _HELD.discard(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = None

    def __del__(self) -> None:
        """Let others in when a run was given up without a word."""
        self.release()
