"""Which processes descend from which, and how to end them all.

Flower's programs start further programs, some of them in sessions of their own, so that neither a
group nor the death of the parent reaches them all. A process is known here by its id and the moment
it started: an id that was given to another process in the meantime is left alone.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_GRACE = 5.0
"""Seconds that processes get to end by themselves."""


@dataclass(frozen=True)
class Known:
    """A process that was seen: its id, its parent's, and when it started."""

    pid: int
    parent: int
    started: str


def descendants(pid: int) -> list[Known]:
    """Return a process and all that it started, directly or not, as of now."""
    return offspring([each for each in _everybody() if each.pid == pid])


def offspring(family: Collection[Known]) -> list[Known]:
    """Return those of a family that are still there, and all that they started."""
    everybody = _everybody()
    children: dict[int, list[Known]] = {}
    for each in everybody:
        children.setdefault(each.parent, []).append(each)
    known = {(each.pid, each.started) for each in family}
    found = [each for each in everybody if (each.pid, each.started) in known]
    for member in found:  # it grows meanwhile
        found += [each for each in children.get(member.pid, ()) if each not in found]
    return found


def living(family: Collection[Known]) -> list[Known]:
    """Return those that are still there."""
    now = {(each.pid, each.started) for each in _everybody()}
    return [each for each in family if (each.pid, each.started) in now]


def end(family: Collection[Known], reap: Callable[[], object], grace: float = _GRACE) -> None:
    """Ask processes to end, wait, and kill those that do not.

    ``reap`` is called while waiting, for the caller to take note of its own children's ends.
    Whatever was started meanwhile by one of them is ended too.
    """
    _send(family, signal.SIGTERM)
    until = time.monotonic() + grace
    everybody = {*family, *offspring(family)}
    while living(everybody) and time.monotonic() < until:
        time.sleep(0.05)
        reap()
        everybody.update(offspring(everybody))
    _send(everybody, signal.SIGKILL)
    while living(everybody):  # nobody survives this signal; the kernel may take a moment
        time.sleep(0.01)
    reap()


def _send(family: Collection[Known], sign: signal.Signals) -> None:
    for member in living(family):
        with suppress(ProcessLookupError):
            os.kill(member.pid, sign)


def _everybody() -> list[Known]:
    """Return all processes but those that ended and only wait to be taken note of."""
    if Path("/proc/self/stat").exists():
        found = [_from_proc(path) for path in Path("/proc").glob("[0-9]*/stat")]
        return [each for each in found if each is not None]
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat=,lstart="], capture_output=True, text=True, check=True
    )
    return [
        Known(int(pid), int(parent), started)
        for pid, parent, state, started in (
            line.split(maxsplit=3) for line in listing.stdout.splitlines()
        )
        if not state.startswith("Z")
    ]


def _from_proc(path: Path) -> Known | None:
    try:
        pid, _, rest = path.read_text(errors="replace").partition(" ")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = rest.rpartition(")")[2].split()  # a program's name may hold blanks and brackets
    # While other threads of it are still about, nobody can take note of a process's end.
    ended = fields[0] == "Z" and int(fields[17]) == 1
    return None if ended else Known(int(pid), int(fields[1]), fields[19])
