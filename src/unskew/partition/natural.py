"""No artificial skew: the groups the data comes in (writers, users, hospitals) are the clients."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.partition.base import NOBODY, Indices, Partition, Partitioner, SamplePool
from unskew.partition.counts import apportion
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS)
class Natural(Partitioner):
    """The data's own groups: each writer, user or hospital is a client.

    Groups with fewer than ``min_size`` samples are left out. When fewer clients are asked for
    than there are groups, so many groups are chosen at random; when more, groups are split:
    each client's samples come from one group, and a group gets clients in proportion to its size.
    """

    min_size: Annotated[int, Field(ge=1)] = 1

    def clients(self, pool: SamplePool, asked: int | None) -> int:
        """Return how many clients there will be: as many as groups unless asked otherwise."""
        return super().clients(pool, len(self._groups(pool)[0]) if asked is None else asked)

    def deal(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the pool's samples out to so many clients."""
        groups, sizes = self._groups(pool)
        if clients <= len(groups):
            origin = np.sort(rng.choice(groups, clients, replace=False))
        else:
            extra = apportion(_claims(sizes, clients)[None, :], np.array([clients - len(groups)]))
            origin = np.repeat(groups, 1 + extra[0])
        assert pool.groups is not None
        return Partition(follow(origin, pool.groups, rng), clients, origin=origin)

    def _groups(self, pool: SamplePool) -> tuple[Indices, Indices]:
        """Return the groups that are large enough, and their sizes."""
        if pool.groups is None:
            raise UnskewError("skew 'natural': this data has no groups; choose another skew")
        groups, sizes = np.unique(pool.groups, return_counts=True)
        large = sizes >= self.min_size
        if not large.any():
            raise UnskewError(
                f"skew 'natural': min_size must be at most {sizes.max(initial=0)}, "
                f"the size of the largest group (got {self.min_size})"
            )
        return groups[large].astype(np.int64), sizes[large].astype(np.int64)


def follow(origin: Indices, groups: NDArray[np.integer], rng: np.random.Generator) -> Indices:
    """Give each sample to a client of its group (``origin`` names each client's, sorted).

    A group with several clients is shuffled and split evenly among them; samples of groups
    without a client get no owner.
    """
    own, first, sharing = np.unique(origin, return_index=True, return_counts=True)
    place = np.minimum(np.searchsorted(own, groups), len(own) - 1)
    rows = np.flatnonzero(own[place] == groups)
    rows = rows[np.lexsort((rng.random(len(rows)), place[rows]))]
    place = place[rows]
    sizes = np.bincount(place, minlength=len(own))
    rank = np.arange(len(rows)) - (np.cumsum(sizes) - sizes)[place]
    owner = np.full(len(groups), NOBODY, np.int64)
    owner[rows] = first[place] + rank % sharing[place]
    return owner


def _claims(sizes: Indices, clients: int) -> NDArray[np.float64]:
    """How many clients each group may claim beyond its first one, before rounding."""
    claims: NDArray[np.float64] = np.maximum(sizes * (clients / sizes.sum()) - 1, 0)
    return claims
