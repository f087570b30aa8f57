"""Label skew by a fixed number of classes a client, as in IDA (Yeganeh et al. 2020)."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.partition.base import Indices, Partition, Partitioner, SamplePool
from unskew.partition.counts import apportion, owners_by_count, within_stock
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS)
class NClasses(Partitioner):
    """Each client draws n classes at random; equal sizes, or random ones up to a cap (IDA).

    Balanced: each class is divided equally among its holders, then everybody is cut down to the
    smallest client's size, so some samples are dropped. Unbalanced: a client gets between 1 and
    ``cap`` samples of each of its classes and at most ``client_cap`` in all; where a class has
    fewer than were drawn, all its holders are cut by the same share. ``double`` lists clients
    that get twice the samples, in the same proportions, as long as there are unused ones
    (IDA's severity study): ``double=0/3/7``.
    """

    n: Annotated[int, Field(ge=1)] = 2
    balanced: bool = True
    cap: Annotated[int, Field(ge=1)] = 1000
    client_cap: Annotated[int | None, Field(ge=1)] = None
    double: Annotated[str, Field(pattern=r"^(\d+(/\d+)*)?$")] = ""

    def deal(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the pool's samples out to so many clients."""
        if self.n > pool.classes:
            raise UnskewError(
                f"skew 'n-classes': n must be at most {pool.classes}, the number of classes "
                f"(got {self.n})"
            )
        held = _held(clients, pool.classes, self.n, rng)
        if self.balanced:
            counts, notes = self._even(held, pool.stock)
        else:
            counts, notes = self._uneven(held, pool.stock, rng)
        counts, more = self._doubled(counts, pool.stock)
        unheld = np.count_nonzero(~held.any(axis=0))
        if unheld:
            notes = (*notes, f"{unheld} classes are held by nobody: clients x n is too small")
        owner = owners_by_count(pool, counts, rng.random(len(pool)))
        return Partition(owner, clients, notes=(*notes, *more))

    def _even(self, held: NDArray[np.bool_], stock: Indices) -> tuple[Indices, tuple[str, ...]]:
        counts = held * (stock // np.maximum(held.sum(axis=0), 1))[None, :]
        sizes = counts.sum(axis=1)
        common = int(sizes.min())
        note = f"clients were cut down to {common} samples each (the largest had {sizes.max()})"
        return apportion(counts, np.full(len(held), common)), (
            note,
        ) if sizes.max() > common else ()

    def _uneven(
        self, held: NDArray[np.bool_], stock: Indices, rng: np.random.Generator
    ) -> tuple[Indices, tuple[str, ...]]:
        asked = held * rng.integers(1, self.cap, held.shape, endpoint=True)
        if self.client_cap is not None:
            asked = apportion(asked, np.minimum(asked.sum(axis=1), self.client_cap))
        short = int(np.count_nonzero(asked.sum(axis=0) > stock))
        note = f"{short} classes had fewer samples than were drawn: their holders were cut alike"
        return within_stock(asked, stock), (note,) if short else ()

    def _doubled(self, counts: Indices, stock: Indices) -> tuple[Indices, tuple[str, ...]]:
        chosen = np.array([int(k) for k in self.double.split("/") if k], np.int64)
        if chosen.max(initial=-1) >= len(counts):
            raise UnskewError(
                f"skew 'n-classes': double must list clients from 0 to {len(counts) - 1} "
                f"(got {self.double!r})"
            )
        extra = np.zeros_like(counts)
        extra[chosen] = counts[chosen]
        granted = within_stock(extra, stock - counts.sum(axis=0))
        lacking = int((extra - granted).sum())
        note = f"{lacking} samples were lacking to double clients {self.double}"
        return counts + granted, (note,) if lacking else ()


def _held(clients: int, classes: int, n: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw n distinct classes for each client, and see to it that every class has a holder.

    A class that nobody drew takes the place of one that several clients hold.
    """
    held = np.zeros((clients, classes), np.bool_)
    drawn = np.argsort(rng.random((clients, classes)), axis=1)[:, :n]
    np.put_along_axis(held, drawn, True, axis=1)
    for label in np.flatnonzero(~held.any(axis=0)):
        spare = np.argwhere(held & (held.sum(axis=0) > 1)[None, :])
        if len(spare) == 0:
            break
        client, other = spare[rng.integers(len(spare))]
        held[client, [other, label]] = False, True
    return held
