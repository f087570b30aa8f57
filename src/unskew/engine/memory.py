"""Which freed memory is kept for the next step, and which is returned to the operating system."""

import ctypes
import sys
from collections.abc import Callable

from torch import Tensor

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MAX_KEPT_BYTES = 2**29
_MIN_STACK_BYTES = 2**26
"""With smaller stacks of models, the gaps of the heap are small too."""


def keep_freed_memory() -> None:
    """Let glibc keep up to half a gigabyte of freed memory.

    Every step allocates and frees the same few hundred kilobytes. By default glibc returns them
    each time and the kernel zeroes every page, which takes a tenth of a step of a small
    convolutional network. Without glibc this does nothing.
    """
    mallopt = _glibc_function("mallopt")
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _MAX_KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _MAX_KEPT_BYTES)


def is_large(stack: Tensor) -> bool:
    """Return whether a stack of models is so large that a copy of it matters."""
    return stack.nbytes >= _MIN_STACK_BYTES


def return_freed_memory(stack: Tensor, left: int) -> None:
    """Return the gaps of the heap while a cohort trains; ``left`` clients are not finished.

    What clients keep lies on the heap between the temporary tensors of training, and glibc reuses
    few of the gaps between them. A round needs the most memory at its end, and the next client has
    to fetch again what is returned, so this happens more often towards the end: for 20 clients,
    when 8, 4, 2, 1 and 0 are left.
    """
    is_power_of_two = left & (left - 1) == 0  # or zero
    if not is_large(stack) or 2 * left > len(stack) or not is_power_of_two:
        return
    malloc_trim = _glibc_function("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _glibc_function(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
