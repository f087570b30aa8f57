"""The peak memory of one piece of work, on Linux."""

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

_OWN = Path("/proc/self")


def peak_above(work: Callable[[], object]) -> float:
    """Return how many MB of memory the work takes at its peak above what is held before.

    Freed memory is given back first, and the kernel's high-water mark is set to what is held now;
    so neither what earlier work left behind nor its peak hides this one.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    (_OWN / "clear_refs").write_text("5")
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(field: str) -> float:
    lines = (_OWN / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e6
