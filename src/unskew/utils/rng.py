"""Random numbers that depend only on (seed, purpose, round, client, …).

No state is carried from one draw to the next: a client's shuffle is the same whether it is trained
alone, in a cohort, in another process, or after a resume.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 0xFFFFFFFFFFFFFFFF


def generator(seed: int, purpose: str, *ids: int) -> np.random.Generator:
    """Return the generator of one purpose, for one tuple of ids."""
    return np.random.Generator(np.random.PCG64(int(stream(seed, purpose, *ids))))


def torch_generator(seed: int, purpose: str, *ids: int) -> "torch.Generator":
    """Return the torch generator of one purpose, for one tuple of ids."""
    import torch  # noqa: PLC0415 (slow to import, and not needed to load data)

    return torch.Generator().manual_seed(int(stream(seed, purpose, *ids)) & 0x7FFFFFFFFFFFFFFF)


_lock = threading.RLock()


def _renew_lock() -> None:
    """Forget threads that hold the lock: a forked process does not have them."""
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@contextmanager
def torch_seeded(seed: int, purpose: str, *ids: int) -> Iterator[None]:
    """Seed torch's global generator for one purpose inside the block, and restore it after.

    Threads take turns, so that runs in the threads of an executor do not disturb each other.
    """
    import torch  # noqa: PLC0415

    with _lock, torch.random.fork_rng(devices=[]):
        torch.default_generator.set_state(torch_generator(seed, purpose, *ids).get_state())
        yield


def stream(seed: int, purpose: str, *ids: int) -> np.uint64:
    """Hash a seed, a purpose and ids to the 64-bit number that starts a stream."""
    state = _mix(seed & _MASK)
    for part in (crc32(purpose.encode()), *ids):
        state = _mix(state ^ _mix(part & _MASK))
    return np.uint64(state)


def permutations(
    start: np.uint64, clients: NDArray[np.int64], sizes: NDArray[np.int64], epoch: int
) -> NDArray[np.int64]:
    """Shuffle every client's samples at once.

    Row k is a permutation of ``range(sizes[k])``, followed by the positions beyond its size. It
    depends on the stream, the client's id, its size and the epoch, never on the other rows: each
    sample gets a hashed key, and sorting the keys is the shuffle.
    """
    width = int(sizes.max(initial=0))
    with np.errstate(over="ignore"):
        rows = _mix_array(start ^ _mix_array(clients.astype(np.uint64)))
        rows = _mix_array(rows + np.uint64(epoch))
        counters = (np.arange(1, width + 1, dtype=np.uint64)) * np.uint64(_GOLDEN)
        keys = _mix_array(rows[:, None] + counters[None, :])
    keys[np.arange(width)[None, :] >= sizes[:, None]] = np.uint64(_MASK)
    return np.argsort(keys, axis=1, kind="stable")


def uniforms(
    start: np.uint64, clients: NDArray[np.int64], step: int, width: int, per_sample: int
) -> NDArray[np.float32]:
    """Draw numbers strictly between 0 and 1 for a step's samples: clients x width x per_sample.

    Those of a sample depend only on the stream, its client, the step and its index in the batch.
    """
    with np.errstate(over="ignore"):
        rows = _mix_array(start ^ _mix_array(clients.astype(np.uint64)))
        rows = _mix_array(rows + np.uint64(step))
        counters = np.arange(1, width * per_sample + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        bits = _mix_array(rows[:, None] + counters[None, :]) >> np.uint64(41)
    # 23 bits plus a half: float32 represents these exactly, and they are never 0 or 1.
    numbers = ((bits + 0.5) / 2**23).astype(np.float32)
    return numbers.reshape(len(clients), width, per_sample)


def _mix(value: int) -> int:
    """Scramble one 64-bit number (the finaliser of SplitMix64)."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _mix_array(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble many 64-bit numbers, as :func:`_mix` does one."""
    values = values + np.uint64(_GOLDEN)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
