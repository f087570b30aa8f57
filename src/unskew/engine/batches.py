"""Which samples each client sees in each step, for a whole cohort at once.

A client's batches depend on its id, its size, the round and the seed alone: the same in a cohort
of one and of a thousand.
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
    """Consecutive steps of one shape, of the clients that still train: the plan's first ones.

    ``first`` is the number of the first step. ``positions`` (steps x clients x largest batch) are
    sample numbers within each client; only the first ``counts[t, k]`` of a batch are real, the
    rest repeats a sample as padding.
    """

    first: int
    positions: Ints
    counts: Ints

    @property
    def clients(self) -> int:
        """How many clients take these steps."""
        return int(self.counts.shape[1])


class Plan:
    """The steps of one round. Clients must come in descending order of their number of steps."""

    def __init__(
        self, clients: Ints, sizes: Ints, settings: Settings, round_: int, *, couples: bool
    ) -> None:
        self._clients, self._sizes = clients, sizes
        self._batch = settings.batch_size
        self._stream = stream(settings.seed, "shuffle", round_)
        self._per_epoch = batches_per_epoch(sizes, self._batch, couples=couples)
        self.steps = local_steps(sizes, settings, couples=couples)
        if np.any(np.diff(self.steps) > 0):
            raise ValueError("clients must come in descending order of steps")
        self._shuffled = cache(self._shuffle)
        self._luck = stream(settings.seed, "chance", round_)

    def __len__(self) -> int:
        return int(self.steps[0]) if len(self.steps) else 0

    def in_blocks(self, most: int) -> Iterator[Steps]:
        """Return all steps in order, as many at once as have one shape and ``most`` samples."""
        clients = np.searchsorted(-self.steps, -np.arange(len(self)), side="left")
        for first, last in _runs(clients):
            active = int(clients[first])
            length = max(1, most // (active * self._batch))
            for start in range(first, last, length):
                yield from self._between(start, min(start + length, last), active)

    def _between(self, first: int, last: int, active: int) -> Iterator[Steps]:
        sizes, per_epoch = self._sizes[:active], self._per_epoch[:active]
        epochs, batches = np.divmod(np.arange(first, last)[:, None], per_epoch)
        starts = batches * self._batch
        counts = np.minimum(self._batch, sizes - starts)
        widths = counts.max(1)
        for begin, end in _runs(widths):
            part = slice(begin, end)
            places = np.minimum(
                starts[part, :, None] + np.arange(widths[begin]), sizes[:, None] - 1
            )
            yield Steps(first + begin, self._samples(epochs[part], places), counts[part])

    def _samples(self, epochs: Ints, places: Ints) -> Ints:
        """Look up who stands at each place of a client's shuffled samples."""
        positions = np.empty_like(places)
        for epoch in np.unique(epochs):
            steps, rows = np.nonzero(epochs == epoch)
            shuffled = self._shuffled(int(epoch))
            positions[steps, rows] = shuffled[rows[:, None], places[steps, rows]]
        return positions

    def of_first_client(self) -> Iterator[Ints]:
        """Return the first client's steps: its sample numbers, without padding.

        The same samples as in blocks, at less cost for a client that trains alone.
        """
        size, batches = int(self._sizes[0]), int(self._per_epoch[0])
        for t in range(len(self)):
            epoch, batch = divmod(t, batches)
            start = batch * self._batch
            yield self._shuffled(epoch)[0, start : min(start + self._batch, size)]

    def noise(self, t: int, width: int, noise_per_sample: int) -> NDArray[np.float32] | None:
        """Return a step's random numbers, clients still training x width x draws; None without."""
        if not noise_per_sample:
            return None
        active = int(np.searchsorted(-self.steps, -t, side="left"))
        return uniforms(self._luck, self._clients[:active], t, width, noise_per_sample)

    def chances(self, steps: Steps, noise_per_sample: int) -> NDArray[np.float32]:
        """Return the random numbers of some steps, which are as in :meth:`chance`."""
        count, clients, width = steps.positions.shape
        return np.stack(
            [
                uniforms(
                    self._luck, self._clients[:clients], steps.first + i, width, noise_per_sample
                )
                for i in range(count)
            ]
        )

    def _shuffle(self, epoch: int) -> Ints:
        return permutations(self._stream, self._clients, self._sizes, epoch)


def _runs(values: Ints) -> Iterator[tuple[int, int]]:
    """Return where each run of equal neighbours begins and ends."""
    edges = (np.flatnonzero(np.diff(values)) + 1).tolist()
    return zip([0, *edges], [*edges, len(values)], strict=True) if len(values) else iter(())


def batches_per_epoch(sizes: Ints, batch: int, *, couples: bool) -> Ints:
    """Count the batches of one pass over each client's samples, the last one possibly smaller.

    Where a network couples the samples of a batch (BatchNorm), a last batch of a single sample is
    left out: its statistics say nothing. A client with one sample then has no batch at all.
    """
    whole, rest = np.divmod(sizes, batch)
    return whole + (rest > 1 if couples else rest > 0)


def local_steps(sizes: Ints, settings: Settings, *, couples: bool) -> Ints:
    """Count the steps each client takes in a round; a client without samples takes none."""
    per_epoch = batches_per_epoch(sizes, settings.batch_size, couples=couples)
    if settings.steps is not None:
        return np.where(per_epoch > 0, settings.steps, 0)
    return per_epoch * (settings.epochs or 1)
