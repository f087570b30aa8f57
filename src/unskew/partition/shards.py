"""Label skew by shards: FedFusion's eta partition, and the two-shard partition of FedAvg.

The second is that of McMahan et al. (2017): sort by label, split into shards, and give each client
some of them at random. FedFusion's code contains it too.
"""

from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.partition.base import NO_CLIENT, Indices, Partition, Partitioner, SamplePool
from unskew.partition.counts import Floats, even_sizes, fill, owners_by_count
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS)
class EtaShards(Partitioner):
    """A share eta of each client's samples is of one class, the rest a random mix (FedFusion).

    Client k's dominant class is k mod C; the other classes get shares of 1 - eta in proportion to
    max(0, N(0.5, 1)). Only a ``share`` of the data is used, and all clients have the same size. The
    samples of a class are split into ``shards`` pieces in the order of the data, and clients take
    them piece by piece. If a class runs out, the client gets more of its other classes; with
    eta = 1 it has none and stays smaller.
    """

    eta: Annotated[float, Field(ge=0, le=1)] = 0.5
    share: Annotated[float, Field(gt=0, le=1)] = 0.8
    shards: Annotated[int, Field(ge=1)] = 200

    def partition(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Divide the pool's samples among ``clients`` clients."""
        size = int(self.share * len(pool) / clients + 1e-9)
        if size < 1:
            raise UnskewError(
                f"skew 'eta-shards': share must be at least {clients / len(pool):.3g} "
                f"to give each of {clients} clients a sample (got {self.share})"
            )
        counts = np.zeros((clients, pool.classes), np.int64)
        dominant, others = self._shares(clients, pool.classes, rng)
        # First the share eta, then the mix, then more of the dominant class where the mix ran out.
        for shares, upto in ((dominant, round(self.eta * size)), (others, size), (dominant, size)):
            available = pool.class_counts - counts.sum(axis=0)
            counts += fill(shares, upto - counts.sum(axis=1), available)
        missing = int(clients * size - counts.sum())
        note = f"{missing} samples are missing: classes ran out, so some clients are smaller"
        owner = owners_by_count(pool, counts, self._by_shard(pool, rng))
        return Partition(owner, clients, notes=(note,) if missing else ())

    def _shares(
        self, clients: int, classes: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Return each client's dominant class, and draw its shares of the others."""
        dominant = (self.eta > 0) * np.eye(classes)[np.arange(clients) % classes]
        mix = np.zeros((clients, classes))
        empty = np.arange(clients if classes > 1 else 0)
        while len(empty):
            mix[empty] = np.maximum(rng.normal(0.5, 1, (len(empty), classes)), 0)
            mix[empty, empty % classes] = 0
            empty = np.flatnonzero(mix.sum(axis=1) == 0)
        return dominant, mix * (self.eta < 1)

    def _by_shard(self, pool: SamplePool, rng: np.random.Generator) -> Indices:
        """Number the samples so that the shards of a class are in random order, each contiguous."""
        rows = np.argsort(pool.labels, kind="stable")
        labels = pool.labels[rows]
        place = np.arange(len(rows)) - (np.cumsum(pool.class_counts) - pool.class_counts)[labels]
        shard = place * self.shards // pool.class_counts[labels]
        keys = rng.random((pool.classes, self.shards))[labels, shard]
        order = np.empty(len(rows), np.int64)
        order[rows[np.lexsort((place, keys))]] = np.arange(len(rows))
        return order


@dataclass(frozen=True, config=OPTIONS)
class Shards(Partitioner):
    """Samples are sorted by label and split into shards; each client gets some at random.

    With ``per_client=none`` each client gets floor(shards / clients); the remainder is dropped.
    """

    shards: Annotated[int, Field(ge=1)] = 200
    per_client: Annotated[int | None, Field(ge=1)] = 2

    def partition(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Divide the pool's samples among ``clients`` clients."""
        per_client = self.shards // clients if self.per_client is None else self.per_client
        if not 1 <= per_client <= self.shards // clients:
            raise UnskewError(
                f"skew 'shards': shards must be at least {clients * max(per_client, 1)} to give "
                f"each of {clients} clients {max(per_client, 1)} (got {self.shards})"
            )
        if self.shards > len(pool):
            raise UnskewError(
                f"skew 'shards': shards must be at most {len(pool)}, the number of samples "
                f"(got {self.shards})"
            )
        shard_owner = np.full(self.shards, NO_CLIENT, np.int64)
        chosen = rng.permutation(self.shards)[: clients * per_client]
        shard_owner[chosen] = np.repeat(np.arange(clients), per_client)
        owner = np.empty(len(pool), np.int64)
        order = np.argsort(pool.labels, kind="stable")
        owner[order] = np.repeat(shard_owner, even_sizes(len(pool), self.shards))
        return Partition(owner, clients)
