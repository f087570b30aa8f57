"""Process a wide matrix in blocks of columns that fit into the processor's cache."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar, cast

import torch
from torch import Tensor

BLOCK = 1 << 20
"""Elements per block. Its 4 MB of float32 stay in the cache across several operations; with much
smaller blocks, the overhead of starting an operation outweighs its computation."""

MIN_PARALLEL_SIZE = 1 << 21
"""Matrices with fewer elements than this are processed faster by a single thread."""

_THREADS: ContextVar[int | None] = ContextVar("threads", default=None)

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Tensor, Tensor, slice], Result]
"""A function of a block, a scratch tensor of the same shape, and the slice of its columns."""


def column_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices that cover the columns, with about :data:`BLOCK` elements each."""
    width = max(1, BLOCK // max(1, rows))
    for start in range(0, columns, width):
        yield slice(start, min(start + width, columns))


def on_blocks(rows: Tensor, work: Work[Result]) -> list[Result]:
    """Call ``work`` on each block of columns and return its results in column order.

    The blocks do not depend on the number of threads, so neither do sums over their results.
    """
    columns = list(column_blocks(*rows.shape))
    # All views are created here, because threads creating them would block each other.
    blocks = torch.split(rows, columns[0].stop, dim=1) if columns else ()
    lanes = max(1, min(_threads(), len(blocks)))
    results: list[Result | None] = [None] * len(blocks)

    def process(lane: int) -> None:
        indices = range(lane, len(blocks), lanes)
        whole = rows.new_empty(blocks[lane].shape if indices else (0, 0))
        for index in indices:
            block = blocks[index]
            scratch = whole if block.shape == whole.shape else whole[:, : block.shape[1]]
            results[index] = work(block, scratch, columns[index])

    in_threads(process, range(lanes), rows)
    return cast("list[Result]", results)


def in_threads(
    work: Callable[[Item], Result], items: Iterable[Item], matrix: Tensor
) -> list[Result]:
    """Call ``work`` on each item, in as many threads as torch uses, and return the results.

    Each operation runs in a single thread; splitting every operation across all threads would
    synchronise them thousands of times. Small matrices, and matrices on accelerators, are
    processed in the calling thread.
    """
    before, threads = torch.get_num_threads(), _threads()
    if threads == 1 or matrix.numel() < MIN_PARALLEL_SIZE or matrix.device.type != "cpu":
        return [work(item) for item in items]
    inference = torch.is_inference_mode_enabled()

    def in_same_mode(item: Item) -> Result:
        with torch.inference_mode(inference):
            return work(item)

    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(in_same_mode, items))
    finally:
        torch.set_num_threads(before)  # a worker's setting also becomes the default for new threads


@contextmanager
def single_threaded() -> Iterator[None]:
    """Run every torch operation in one thread; :func:`in_threads` still uses all threads.

    This is faster for code made of many short operations.
    """
    before = torch.get_num_threads()
    token = _THREADS.set(_threads())
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _THREADS.reset(token)


def take_columns(rows: Tensor, columns: Tensor) -> Tensor:
    """Return ``rows[:, columns]``; ``gather`` is twice as fast and copies only these columns."""
    return rows.gather(1, columns.expand(len(rows), -1))


def as_matrix(vectors: Sequence[Tensor]) -> Tensor:
    """Stack vectors; those that are the rows of a matrix already are not copied."""
    first = vectors[0]
    is_matrix = first.is_contiguous() and all(
        each.data_ptr() == first.data_ptr() + row * first.nbytes
        and each.shape == first.shape
        and each.dtype == first.dtype
        and each.is_contiguous()
        and each.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        for row, each in enumerate(vectors)
    )
    if not is_matrix:
        return torch.stack(list(vectors))
    return first.as_strided((len(vectors), *first.shape), (first.numel(), *first.stride()))


def _threads() -> int:
    return _THREADS.get() or torch.get_num_threads()
