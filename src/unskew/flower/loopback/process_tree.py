"""Find the descendants of a process and terminate them all.

Flower's programs start other programs, some of them in new sessions, so neither a signal to the
process group nor the end of the parent terminates them all. ``psutil`` identifies a process by its
id and its start time: an unrelated process that reuses an id is never touched.
"""

import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

_GRACE = 5.0
"""Seconds that processes have to exit after SIGTERM."""


def descendants(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants that are alive."""
    try:
        return with_descendants([psutil.Process(pid)])
    except psutil.NoSuchProcess:
        return []


def with_descendants(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return the given processes and all their descendants that are alive, parents first."""
    found: dict[psutil.Process, None] = {}
    for process in processes:
        if process not in found:
            found[process] = None
            with suppress(psutil.NoSuchProcess):
                found.update(dict.fromkeys(process.children(recursive=True)))
    return alive(found)


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that are alive."""
    return [process for process in processes if _is_alive(process)]


def terminate(processes: Iterable[psutil.Process], grace: float = _GRACE) -> None:
    """Terminate processes and their descendants; kill those still alive after ``grace`` seconds.

    Children of this process are left as zombies, so that the code that started them can still
    read their exit codes.
    """
    left = with_descendants(processes)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    deadline = time.monotonic() + grace
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = with_descendants(left)
    while left:  # no process survives SIGKILL, but the kernel may take a moment
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.01)
        left = with_descendants(left)


def _is_alive(process: psutil.Process) -> bool:
    """Return whether a process still runs code.

    Linux reports a process as a zombie once its first thread has ended, even if others still run.
    """
    try:
        return process.is_running() and (
            process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
        )
    except psutil.NoSuchProcess:
        return False
