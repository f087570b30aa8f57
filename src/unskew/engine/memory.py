"""Keep freed memory for the next step instead of returning it to the operating system."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MAX_KEPT_BYTES = 2**29


def keep_freed_memory() -> None:
    """Let glibc keep up to half a gigabyte of freed memory.

    Every step allocates and frees the same few hundred kilobytes. By default glibc returns them
    each time and the kernel zeroes every page, which takes a tenth of a step of a small
    convolutional network. Without glibc this does nothing.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _MAX_KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _MAX_KEPT_BYTES)
