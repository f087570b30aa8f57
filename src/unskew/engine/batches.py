"""The batches of each client in each local step, for a whole cohort at once.

A client's batches depend only on its id, its number of samples, the round and the seed: they are
the same in a cohort of one and of a thousand. The seed is the run's, except on nodes that keep the
batches of private stages secret.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from unskew.engine.settings import Settings
from unskew.utils.rng import permutations, stream, uniforms

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Steps:
    """Consecutive steps of one shape, for the clients that are still training.

    Those clients are the first of the schedule. ``first`` is the number of the first step.
    ``positions`` (steps x clients x largest batch) are sample indices within each client; only the
    first ``counts[t, k]`` of a batch are real, and the rest repeat a sample as padding.
    """

    first: int
    positions: Ints
    counts: Ints

    @property
    def clients(self) -> int:
        """The number of clients that take these steps."""
        return int(self.counts.shape[1])


class BatchSchedule:
    """The steps of one round, for clients in descending order of their number of steps."""

    def __init__(
        self,
        clients: Ints,
        sizes: Ints,
        settings: Settings,
        round_: int,
        *,
        couples: bool,
        seed: int,
    ) -> None:
        """Shuffle with ``seed``, which differs from the run's where batches must be secret."""
        self._clients, self._sizes = clients, sizes
        self._batch = settings.batch_size
        self._stream = stream(seed, "shuffle", round_)
        self._per_epoch = batches_per_epoch(sizes, self._batch, couples=couples)
        self.steps = local_steps(sizes, settings, couples=couples)
        if np.any(np.diff(self.steps) > 0):
            raise ValueError("clients must come in descending order of steps")
        self._shuffled = cache(self._shuffle)
        # The purpose "chance" seeds the stream: another name would change the random numbers.
        self._noise_stream = stream(seed, "chance", round_)

    def __len__(self) -> int:
        return int(self.steps[0]) if len(self.steps) else 0

    def in_blocks(self, max_samples: int) -> Iterator[Steps]:
        """Yield all steps in order, in blocks of one shape with at most ``max_samples`` samples.

        A single step may have more samples than that.
        """
        clients = np.searchsorted(-self.steps, -np.arange(len(self)), side="left")
        for first, last in _equal_runs(clients):
            active = int(clients[first])
            length = max(1, max_samples // (active * self._batch))
            for start in range(first, last, length):
                yield from self._between(start, min(start + length, last), active)

    def _between(self, first: int, last: int, active: int) -> Iterator[Steps]:
        sizes, per_epoch = self._sizes[:active], self._per_epoch[:active]
        epochs, batches = np.divmod(np.arange(first, last)[:, None], per_epoch)
        starts = batches * self._batch
        counts = np.minimum(self._batch, sizes - starts)
        widths = counts.max(1)
        for begin, end in _equal_runs(widths):
            part = slice(begin, end)
            ranks = np.minimum(starts[part, :, None] + np.arange(widths[begin]), sizes[:, None] - 1)
            yield Steps(first + begin, self._samples(epochs[part], ranks), counts[part])

    def _samples(self, epochs: Ints, ranks: Ints) -> Ints:
        """Look up the samples with these ranks in each client's shuffled order."""
        positions = np.empty_like(ranks)
        for epoch in np.unique(epochs):
            steps, rows = np.nonzero(epochs == epoch)
            shuffled = self._shuffled(int(epoch))
            positions[steps, rows] = shuffled[rows[:, None], ranks[steps, rows]]
        return positions

    def of_first_client(self) -> Iterator[Ints]:
        """Yield the first client's batches: sample indices without padding.

        They are the same samples as in blocks, at less cost for a client that trains alone.
        """
        size, batches = int(self._sizes[0]), int(self._per_epoch[0])
        for t in range(len(self)):
            epoch, batch = divmod(t, batches)
            start = batch * self._batch
            yield self._shuffled(epoch)[0, start : min(start + self._batch, size)]

    def noise(self, t: int, width: int, noise_per_sample: int) -> NDArray[np.float32] | None:
        """Return the random numbers of step ``t``: active clients x width x numbers per sample.

        None if a sample needs none.
        """
        if not noise_per_sample:
            return None
        active = int(np.searchsorted(-self.steps, -t, side="left"))
        return self._noise(active, t, width, noise_per_sample)

    def block_noise(self, steps: Steps, noise_per_sample: int) -> NDArray[np.float32]:
        """Return the random numbers of a block of steps, stacked; see :meth:`noise`."""
        count, clients, width = steps.positions.shape
        return np.stack(
            [self._noise(clients, steps.first + i, width, noise_per_sample) for i in range(count)]
        )

    def _noise(
        self, clients: int, t: int, width: int, noise_per_sample: int
    ) -> NDArray[np.float32]:
        ids = self._clients[:clients]
        return uniforms(self._noise_stream, ids, t, width, noise_per_sample)

    def _shuffle(self, epoch: int) -> Ints:
        return permutations(self._stream, self._clients, self._sizes, epoch)


def _equal_runs(values: Ints) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each sequence of equal neighbouring values."""
    edges = (np.flatnonzero(np.diff(values)) + 1).tolist()
    return zip([0, *edges], [*edges, len(values)], strict=True) if len(values) else iter(())


def batches_per_epoch(sizes: Ints, batch: int, *, couples: bool) -> Ints:
    """Count each client's batches per epoch; the last batch may be smaller.

    Where a network couples the samples of a batch (BatchNorm), a last batch of a single sample is
    left out, since its statistics are degenerate. A client with one sample then has no batch.
    """
    whole, rest = np.divmod(sizes, batch)
    return whole + (rest > 1 if couples else rest > 0)


def local_steps(sizes: Ints, settings: Settings, *, couples: bool) -> Ints:
    """Count the local steps of each client per round; a client without samples takes none."""
    per_epoch = batches_per_epoch(sizes, settings.batch_size, couples=couples)
    if settings.steps is not None:
        return np.where(per_epoch > 0, settings.steps, 0)
    return per_epoch * (settings.epochs or 1)
