"""No artificial skew: the data's natural groups (writers, users, hospitals) are the clients."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.partition.base import NO_CLIENT, Indices, Partition, Partitioner, SamplePool
from unskew.partition.counts import apportion
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS)
class Natural(Partitioner):
    """The data's own groups: each writer, user or hospital is a client.

    Groups with fewer than ``min_size`` samples are left out. If the number of clients is smaller
    than the number of groups, that many groups are chosen at random; if it is larger, groups are
    split: each client's samples come from one group, and the number of clients per group is
    proportional to its size.
    """

    min_size: Annotated[int, Field(ge=1)] = 1

    def num_clients(self, pool: SamplePool, requested: int | None) -> int:
        """Return the number of clients, which is the number of groups unless requested."""
        if requested is None:
            requested = len(self._groups(pool)[0])
        return super().num_clients(pool, requested)

    def partition(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Divide the pool's samples among ``clients`` clients."""
        groups, sizes = self._groups(pool)
        if clients <= len(groups):
            origin = np.sort(rng.choice(groups, clients, replace=False))
        else:
            shares = _extra_clients(sizes, clients)[None, :]
            extra = apportion(shares, np.array([clients - len(groups)]))
            origin = np.repeat(groups, 1 + extra[0])
        assert pool.groups is not None
        return Partition(assign_by_group(origin, pool.groups, rng), clients, origin=origin)

    def _groups(self, pool: SamplePool) -> tuple[Indices, Indices]:
        """Return the groups that are large enough, and their sizes."""
        if pool.groups is None:
            raise UnskewError("skew 'natural': this data has no groups; choose another partitioner")
        groups, sizes = np.unique(pool.groups, return_counts=True)
        large = sizes >= self.min_size
        if not large.any():
            raise UnskewError(
                f"skew 'natural': min_size must be at most {sizes.max(initial=0)}, "
                f"the size of the largest group (got {self.min_size})"
            )
        return groups[large].astype(np.int64), sizes[large].astype(np.int64)


def assign_by_group(
    origin: Indices, groups: NDArray[np.integer], rng: np.random.Generator
) -> Indices:
    """Give each sample to a client of its group; ``origin`` is each client's group, sorted.

    A group with several clients is shuffled and split evenly among them; samples of groups
    without a client get no owner.
    """
    held, first, sharing = np.unique(origin, return_index=True, return_counts=True)
    place = np.minimum(np.searchsorted(held, groups), len(held) - 1)
    rows = np.flatnonzero(held[place] == groups)
    rows = rows[np.lexsort((rng.random(len(rows)), place[rows]))]
    place = place[rows]
    sizes = np.bincount(place, minlength=len(held))
    rank = np.arange(len(rows)) - (np.cumsum(sizes) - sizes)[place]
    owner = np.full(len(groups), NO_CLIENT, np.int64)
    owner[rows] = first[place] + rank % sharing[place]
    return owner


def _extra_clients(sizes: Indices, clients: int) -> NDArray[np.float64]:
    """Return the number of clients each group gets beyond its first one, before rounding."""
    extra: NDArray[np.float64] = np.maximum(sizes * (clients / sizes.sum()) - 1, 0)
    return extra
