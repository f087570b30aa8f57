"""How many threads torch computes with."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_WORTH_SHARING = 2**21
"""Numbers in one step's matrix below which threads cost more than they bring."""


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with so many threads, then with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(numbers: int) -> int:
    """Return how many threads suit a computation on so many numbers: one, or all there are.

    Small steps gain nothing from a second thread, and lose dearly to it where another program
    needs the core: each of a thousand short loops then waits for a thread that does not run.
    """
    return 1 if numbers < _WORTH_SHARING else torch.get_num_threads()
