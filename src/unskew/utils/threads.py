"""The number of threads that torch computes with."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_MIN_NUMBERS = 2**21
"""Numbers in one step's matrix below which more threads cost more time than they save."""


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with ``count`` threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(numbers: int) -> int:
    """Return the number of threads for a computation on ``numbers`` numbers: one, or torch's.

    Small steps gain nothing from a second thread. On a busy machine they even lose: every short
    parallel loop waits for a thread that another program keeps from running.
    """
    return 1 if numbers < _MIN_NUMBERS else torch.get_num_threads()
