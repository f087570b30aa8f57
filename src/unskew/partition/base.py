"""The interface of a partitioner: a rule that divides samples among clients.

A partitioner is a frozen dataclass of its options. It sees labels (and the data's natural groups)
and assigns each sample to a client; a distortion also changes the features of a client's samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.errors import UnskewError

Indices = NDArray[np.int64]

NO_CLIENT = -1
"""The owner of a sample that was dropped."""


@dataclass(frozen=True)
class SamplePool:
    """What a partitioner sees: the label of each sample, and its natural group if it has one."""

    labels: NDArray[Any]
    classes: int
    groups: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def class_counts(self) -> Indices:
        """The number of samples of each class."""
        return np.bincount(self.labels, minlength=self.classes).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Partition:
    """The client that each sample belongs to.

    ``owner`` holds the client of each sample of the pool, or ``NO_CLIENT`` if it was dropped, so
    that no sample can belong to two clients. ``origin`` is the natural group of each client,
    where it has one. ``notes`` describes what the partitioner could not do as requested.
    """

    owner: Indices
    clients: int
    origin: Indices | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def dropped(self) -> int:
        """The number of samples that belong to no client."""
        return int(np.count_nonzero(self.owner == NO_CLIENT))

    @cached_property
    def sizes(self) -> Indices:
        """The number of samples of each client."""
        owned = self.owner[self.owner != NO_CLIENT]
        return np.bincount(owned, minlength=self.clients).astype(np.int64)

    @cached_property
    def rows(self) -> Indices:
        """The samples that belong to a client, ordered by client."""
        return np.argsort(self.owner, kind="stable")[self.dropped :]

    @property
    def parts(self) -> Sequence[Indices]:
        """The samples of each client, one array per client."""
        return np.split(self.rows, np.cumsum(self.sizes)[:-1])


class Partitioner:
    """A rule that divides samples among clients.

    Subclasses are frozen dataclasses and implement :meth:`partition`.
    """

    distorts: ClassVar[bool] = False
    """Whether it changes features; only such partitioners may follow a plus in a spec string."""

    default_clients: ClassVar[int] = 10
    """The number of clients unless the user asks for another."""

    def partition(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Divide the pool's samples among ``clients`` clients."""
        raise NotImplementedError

    def num_clients(self, pool: SamplePool, requested: int | None) -> int:
        """Return the number of clients for a request, or the default if it is None."""
        count = self.default_clients if requested is None else requested
        if not 1 <= count <= len(pool):
            raise UnskewError(
                f"clients must be from 1 to {len(pool)}, the number of samples (got {count})"
            )
        return count

    def distort(
        self, x: NDArray[Any], client: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> NDArray[Any]:
        """Change features depending on the client that holds them; most partitioners do not."""
        del client, clients, rng
        return x
