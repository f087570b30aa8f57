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
from unskew.rng import permutations, stream, uniforms

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Step:
    """One step of the clients that still train: the first ``active`` of the plan.

    ``positions`` (active x largest batch) are sample numbers within each client; only the first
    ``counts[k]`` of row k are real, the rest repeats a sample as padding.
    """

    active: int
    positions: Ints
    counts: Ints


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

    def __getitem__(self, t: int) -> Step:
        active = int(np.searchsorted(-self.steps, -t, side="left"))
        sizes, per_epoch = self._sizes[:active], self._per_epoch[:active]
        epochs, starts = t // per_epoch, (t % per_epoch) * self._batch
        counts = np.minimum(self._batch, sizes - starts)
        places = np.minimum(starts[:, None] + np.arange(counts.max()), sizes[:, None] - 1)
        if np.all(epochs == epochs[0]):
            positions = np.take_along_axis(self._shuffled(int(epochs[0]))[:active], places, axis=1)
        else:
            positions = np.empty_like(places)
            for epoch in np.unique(epochs):
                rows = np.flatnonzero(epochs == epoch)
                shuffled = self._shuffled(int(epoch))[rows]
                positions[rows] = np.take_along_axis(shuffled, places[rows], axis=1)
        return Step(active, positions, counts)

    def of_first_client(self) -> Iterator[Ints]:
        """Return the first client's steps: its sample numbers, without padding.

        The same samples as by index, at less cost for a client that trains alone.
        """
        size, batches = int(self._sizes[0]), int(self._per_epoch[0])
        for t in range(len(self)):
            epoch, batch = divmod(t, batches)
            start = batch * self._batch
            yield self._shuffled(epoch)[0, start : min(start + self._batch, size)]

    def chance(self, t: int, width: int, draws: int) -> NDArray[np.float32] | None:
        """Return a step's random numbers, clients still training x width x draws; None without."""
        if not draws:
            return None
        active = int(np.searchsorted(-self.steps, -t, side="left"))
        return uniforms(self._luck, self._clients[:active], t, width, draws)

    def _shuffle(self, epoch: int) -> Ints:
        return permutations(self._stream, self._clients, self._sizes, epoch)


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
