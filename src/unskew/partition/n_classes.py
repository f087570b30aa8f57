"""Label skew by a fixed number of classes per client, as in IDA (Yeganeh et al. 2020)."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.partition.base import Indices, Partition, Partitioner, SamplePool
from unskew.partition.counts import apportion, limit_to_available, owners_by_count
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS)
class NClasses(Partitioner):
    """Each client holds n random classes, with equal sizes or random sizes up to a cap (IDA).

    Balanced: each class is divided equally among the clients that hold it, then every client is
    reduced to the size of the smallest, which drops samples. Unbalanced: a client gets between 1
    and ``cap`` samples of each of its classes and at most ``client_cap`` in all; if a class has
    fewer samples than were drawn, all clients that hold it are reduced by the same share.
    ``double`` lists clients that get twice the samples in the same proportions, as long as unused
    samples remain (IDA's severity study): ``double=0/3/7``.
    """

    n: Annotated[int, Field(ge=1)] = 2
    balanced: bool = True
    cap: Annotated[int, Field(ge=1)] = 1000
    client_cap: Annotated[int | None, Field(ge=1)] = None
    double: Annotated[str, Field(pattern=r"^(\d+(/\d+)*)?$")] = ""

    def partition(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Divide the pool's samples among ``clients`` clients."""
        if self.n > pool.classes:
            raise UnskewError(
                f"skew 'n-classes': n must be at most {pool.classes}, the number of classes "
                f"(got {self.n})"
            )
        held = _draw_classes(clients, pool.classes, self.n, rng)
        if self.balanced:
            counts, notes = self._balanced_counts(held, pool.class_counts)
        else:
            counts, notes = self._unbalanced_counts(held, pool.class_counts, rng)
        counts, more_notes = self._doubled(counts, pool.class_counts)
        unheld = np.count_nonzero(~held.any(axis=0))
        if unheld:
            notes = (*notes, f"no client holds {unheld} of the classes: clients x n is too small")
        owner = owners_by_count(pool, counts, rng.random(len(pool)))
        return Partition(owner, clients, notes=(*notes, *more_notes))

    def _balanced_counts(
        self, held: NDArray[np.bool_], class_counts: Indices
    ) -> tuple[Indices, tuple[str, ...]]:
        counts = held * (class_counts // np.maximum(held.sum(axis=0), 1))[None, :]
        sizes = counts.sum(axis=1)
        smallest = int(sizes.min())
        note = f"clients were reduced to {smallest} samples each (the largest had {sizes.max()})"
        notes = (note,) if sizes.max() > smallest else ()
        return apportion(counts, np.full(len(held), smallest)), notes

    def _unbalanced_counts(
        self, held: NDArray[np.bool_], class_counts: Indices, rng: np.random.Generator
    ) -> tuple[Indices, tuple[str, ...]]:
        demand = held * rng.integers(1, self.cap, held.shape, endpoint=True)
        if self.client_cap is not None:
            demand = apportion(demand, np.minimum(demand.sum(axis=1), self.client_cap))
        short = int(np.count_nonzero(demand.sum(axis=0) > class_counts))
        note = (
            f"{short} classes had fewer samples than were drawn: all clients that hold them "
            "were reduced by the same share"
        )
        return limit_to_available(demand, class_counts), (note,) if short else ()

    def _doubled(self, counts: Indices, class_counts: Indices) -> tuple[Indices, tuple[str, ...]]:
        chosen = np.array([int(k) for k in self.double.split("/") if k], np.int64)
        if chosen.max(initial=-1) >= len(counts):
            raise UnskewError(
                f"skew 'n-classes': double must list clients from 0 to {len(counts) - 1} "
                f"(got {self.double!r})"
            )
        extra = np.zeros_like(counts)
        extra[chosen] = counts[chosen]
        granted = limit_to_available(extra, class_counts - counts.sum(axis=0))
        missing = int((extra - granted).sum())
        note = f"{missing} samples were missing to double clients {self.double}"
        return counts + granted, (note,) if missing else ()


def _draw_classes(
    clients: int, classes: int, n: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Draw n distinct classes per client so that at least one client holds each class.

    A class that no client drew replaces one that several clients hold.
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
