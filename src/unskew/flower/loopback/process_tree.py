"""Find the descendants of a process and end them all.

Flower's programs start further programs, some of them in sessions of their own, so that neither a
signal to a process group nor the end of the parent reaches them all. ``psutil`` identifies a
process by its id and its start time: a process that got the id of an earlier one is left alone.
"""

import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

_GRACE = 5.0
"""Seconds that processes get to end by themselves."""


def descendants(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants, as far as they are alive."""
    try:
        return offspring([psutil.Process(pid)])
    except psutil.NoSuchProcess:
        return []


def offspring(family: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return the members of a family that are alive and all their descendants, parents first."""
    found: dict[psutil.Process, None] = {}
    for member in family:
        if member not in found:
            found[member] = None
            with suppress(psutil.NoSuchProcess):
                found.update(dict.fromkeys(member.children(recursive=True)))
    return living(found)


def living(family: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return the members of a family that are alive."""
    return [member for member in family if _is_alive(member)]


def end(family: Iterable[psutil.Process], grace: float = _GRACE) -> None:
    """Ask processes and their descendants to end, wait, and kill those that do not.

    Those that are children of this process are left as zombies, so that whoever started them can
    still read their exit codes.
    """
    left = offspring(family)
    for member in left:
        with suppress(psutil.NoSuchProcess):
            member.terminate()
    deadline = time.monotonic() + grace
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = offspring(left)
    while left:  # no process survives this signal, but the kernel may take a moment
        for member in left:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        time.sleep(0.01)
        left = offspring(left)


def _is_alive(process: psutil.Process) -> bool:
    """Tell whether a process still runs code.

    Linux reports a process as a zombie once its first thread has ended, even if others still run.
    """
    try:
        return process.is_running() and (
            process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
        )
    except psutil.NoSuchProcess:
        return False
