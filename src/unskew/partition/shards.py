"""Label skew by shards: FedFusion's eta partition, and the two-shard deal its code has.

The second is that of McMahan et al. (2017): sort by label, cut into shards, deal some to each.
"""

from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.partition.base import NOBODY, Indices, Partition, Partitioner, SamplePool
from unskew.partition.counts import Floats, even_sizes, fill, owners_by_count
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS)
class EtaShards(Partitioner):
    """A share eta of each client's samples is of one class, the rest a random mix (FedFusion).

    Client k's dominant class is k mod C; the other classes get shares of 1 - eta in proportion to
    max(0, N(0.5, 1)). Only a ``share`` of the data is used and all clients are of one size. The
    samples of a class lie in ``shards`` pieces in the order of the data, and clients take them
    piece by piece. Where a class runs out, the client's other classes make up for it; with
    eta = 1 there is no other and the client stays smaller.
    """

    eta: Annotated[float, Field(ge=0, le=1)] = 0.5
    share: Annotated[float, Field(gt=0, le=1)] = 0.8
    shards: Annotated[int, Field(ge=1)] = 200

    def deal(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the pool's samples out to so many clients."""
        size = int(self.share * len(pool) / clients + 1e-9)
        if size < 1:
            raise UnskewError(
                f"skew 'eta-shards': share must be at least {clients / len(pool):.3g} "
                f"to give {clients} clients a sample each (got {self.share})"
            )
        counts = np.zeros((clients, pool.classes), np.int64)
        own, others = self._shares(clients, pool.classes, rng)
        # First what eta promises, then the mix, then more of the own class where the mix ran out.
        for shares, upto in ((own, round(self.eta * size)), (others, size), (own, size)):
            counts += fill(shares, upto - counts.sum(axis=1), pool.stock - counts.sum(axis=0))
        lacking = int(clients * size - counts.sum())
        note = f"{lacking} samples were lacking: classes ran out, so some clients are smaller"
        owner = owners_by_count(pool, counts, self._by_shard(pool, rng))
        return Partition(owner, clients, notes=(note,) if lacking else ())

    def _shares(
        self, clients: int, classes: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Return each client's dominant class, and draw its shares in the others."""
        own = (self.eta > 0) * np.eye(classes)[np.arange(clients) % classes]
        mix = np.zeros((clients, classes))
        empty = np.arange(clients if classes > 1 else 0)
        while len(empty):
            mix[empty] = np.maximum(rng.normal(0.5, 1, (len(empty), classes)), 0)
            mix[empty, empty % classes] = 0
            empty = np.flatnonzero(mix.sum(axis=1) == 0)
        return own, mix * (self.eta < 1)

    def _by_shard(self, pool: SamplePool, rng: np.random.Generator) -> Indices:
        """Number the samples so that shards of a class come in random order, each kept together."""
        rows = np.argsort(pool.labels, kind="stable")
        labels = pool.labels[rows]
        place = np.arange(len(rows)) - (np.cumsum(pool.stock) - pool.stock)[labels]
        shard = place * self.shards // pool.stock[labels]
        keys = rng.random((pool.classes, self.shards))[labels, shard]
        order = np.empty(len(rows), np.int64)
        order[rows[np.lexsort((place, keys))]] = np.arange(len(rows))
        return order


@dataclass(frozen=True, config=OPTIONS)
class Shards(Partitioner):
    """Samples sorted by label and cut into shards, a few dealt to each client at random.

    ``per_client=none`` deals out floor(shards / clients) to each; shards left over are dropped.
    """

    shards: Annotated[int, Field(ge=1)] = 200
    per_client: Annotated[int | None, Field(ge=1)] = 2

    def deal(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the pool's samples out to so many clients."""
        each = self.shards // clients if self.per_client is None else self.per_client
        if not 1 <= each <= self.shards // clients:
            raise UnskewError(
                f"skew 'shards': shards must be at least {clients * max(each, 1)} to give "
                f"{clients} clients {max(each, 1)} each (got {self.shards})"
            )
        if self.shards > len(pool):
            raise UnskewError(
                f"skew 'shards': shards must be at most {len(pool)}, the number of samples "
                f"(got {self.shards})"
            )
        taker = np.full(self.shards, NOBODY, np.int64)
        taker[rng.permutation(self.shards)[: clients * each]] = np.repeat(np.arange(clients), each)
        owner = np.empty(len(pool), np.int64)
        order = np.argsort(pool.labels, kind="stable")
        owner[order] = np.repeat(taker, even_sizes(len(pool), self.shards))
        return Partition(owner, clients)
