"""Delft's NIID-2: one client that sees everything, and clients that see a few classes each.

From the thesis behind the latent-discrepancy weights; FedDisco (Ye et al. 2023) has a recipe of
the same name that deals more evenly.
"""

from typing import ClassVar, Literal

import numpy as np
from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.partition.base import Partition, Partitioner, SamplePool
from unskew.partition.counts import even_sizes, owners_by_count
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS)
class NIID2(Partitioner):
    """Delft's NIID-2: client 0 holds all classes, the others disjoint groups of them (6 clients).

    With 10 classes and 6 clients the groups are pairs. ``thesis``: client 0 gets N/K samples at
    random and everything else goes to the owner of its class, classes grouped at random.
    ``feddisco``: of every class client 0 gets 1/K and its owner the rest, classes grouped in
    order and what does not divide by K dropped, so balanced classes make equal clients.
    """

    variant: Literal["thesis", "feddisco"] = "thesis"
    default_clients: ClassVar[int] = 6

    def deal(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the pool's samples out to so many clients."""
        if not 2 <= clients <= pool.classes + 1:
            raise UnskewError(
                f"skew 'niid-2': clients must be from 2 to {pool.classes + 1}, "
                f"one more than there are classes (got {clients})"
            )
        groups = np.repeat(np.arange(1, clients), even_sizes(pool.classes, clients - 1))
        if self.variant == "thesis":
            owner = rng.permutation(groups)[pool.labels]
            owner[rng.permutation(len(pool))[: len(pool) // clients]] = 0
            return Partition(owner, clients)
        unit = pool.stock // clients
        counts = np.zeros((clients, pool.classes), np.int64)
        counts[0] = unit
        counts[groups, np.arange(pool.classes)] = unit * (clients - 1)
        return Partition(owners_by_count(pool, counts, rng.random(len(pool))), clients)
