"""What every recipe for skew is: a rule that deals samples out to clients.

A recipe is a frozen dataclass of its options. It sees labels (and the data's natural groups) and
says who owns each sample; a distortion also changes the features a client sees.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.errors import UnskewError

Indices = NDArray[np.int64]

NOBODY = -1
"""The owner of a sample that was dropped."""


@dataclass(frozen=True)
class SamplePool:
    """What a recipe may look at: the labels to deal out, and the natural group of each sample."""

    labels: NDArray[Any]
    classes: int
    groups: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def stock(self) -> Indices:
        """How many samples of each class there are."""
        return np.bincount(self.labels, minlength=self.classes).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Partition:
    """Who owns which sample.

    ``owner`` holds the client of each sample of the pool, or ``NOBODY`` where it was dropped, so
    that no sample can belong to two clients. ``origin`` is the natural group of each client,
    where it has one. ``notes`` says in words what the recipe could not do as asked.
    """

    owner: Indices
    clients: int
    origin: Indices | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def dropped(self) -> int:
        """How many samples nobody owns."""
        return int(np.count_nonzero(self.owner == NOBODY))

    @cached_property
    def sizes(self) -> Indices:
        """How many samples each client owns."""
        owned = self.owner[self.owner != NOBODY]
        return np.bincount(owned, minlength=self.clients).astype(np.int64)

    @cached_property
    def rows(self) -> Indices:
        """The owned samples, client by client."""
        return np.argsort(self.owner, kind="stable")[self.dropped :]

    @property
    def parts(self) -> Sequence[Indices]:
        """The samples of each client, one array a client."""
        return np.split(self.rows, np.cumsum(self.sizes)[:-1])


class Partitioner:
    """A recipe. Subclasses are frozen dataclasses and implement :meth:`deal`."""

    distorts: ClassVar[bool] = False
    """Whether the recipe changes features; only such recipes may stand after a plus."""

    default_clients: ClassVar[int] = 10
    """How many clients there are when the user does not say."""

    def deal(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the pool's samples out to so many clients."""
        raise NotImplementedError

    def clients(self, pool: SamplePool, asked: int | None) -> int:
        """Return how many clients there will be when ``asked`` were asked for (None: a default)."""
        count = self.default_clients if asked is None else asked
        if not 1 <= count <= len(pool):
            raise UnskewError(
                f"clients must be from 1 to {len(pool)}, the number of samples (got {count})"
            )
        return count

    def distort(
        self, x: NDArray[Any], client: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> NDArray[Any]:
        """Change features by the client that holds them; most recipes do not."""
        del client, clients, rng
        return x
