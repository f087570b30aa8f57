"""What one piece of work takes: measured in a process of its own, forked for it (Linux)."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_OWN = Path("/proc/self")
T = TypeVar("T")


def in_a_child(work: Callable[[], T]) -> T:
    """Do the work in a forked process and return its result.

    It sees all that this process holds without a copy, and finds no memory that earlier work has
    freed but not given back. This process must not have computed with several threads before:
    they do not survive the fork.
    """
    forks = multiprocessing.get_context("fork")
    results = forks.SimpleQueue()
    child = forks.Process(target=lambda: results.put(work()))
    child.start()
    child.join()
    if child.exitcode:
        raise SystemExit(child.exitcode)
    found: T = results.get()
    return found


def peak_above(work: Callable[[], object]) -> float:
    """Return how many MB of memory the work takes at its peak above what is held before."""
    (_OWN / "clear_refs").write_text("5")  # sets the high-water mark to what is held now
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(field: str) -> float:
    lines = (_OWN / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e6
