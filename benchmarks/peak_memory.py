"""The peak memory of a function, measured in a forked process (Linux)."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_OWN = Path("/proc/self")
T = TypeVar("T")


def in_a_child(work: Callable[[], T]) -> T:
    """Call the function in a forked process and return its result.

    The child shares this process's memory without a copy, and cannot reuse memory that earlier
    work freed without returning it to the system. Before the fork, this process must not have
    computed with several threads: they do not exist in the child.
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
    """Return the peak memory of a call, in MB above the memory in use before it."""
    (_OWN / "clear_refs").write_text("5")  # resets VmHWM to the current VmRSS
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(field: str) -> float:
    lines = (_OWN / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e6
