"""Keeping freed memory for the next step instead of giving it back to the system."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEEP = 2**29


def keep_freed_memory() -> None:
    """Tell glibc to hold on to up to half a gigabyte that was freed.

    A step allocates and frees the same few hundred kilobytes again and again. By default glibc
    returns them each time, and the kernel then zeroes every page anew: a tenth of a step of a
    small convolutional network. Elsewhere than on glibc this does nothing.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEEP)
        mallopt(_MMAP_THRESHOLD, _KEEP)
