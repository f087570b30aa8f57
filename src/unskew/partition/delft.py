"""Delft's NIID-2: one client that holds all classes, and clients that hold a few classes each.

It comes from the thesis that introduced latent-discrepancy weights. FedDisco (Ye et al. 2023) has
a partitioner of the same name whose client sizes are more even.
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
    random, every other sample goes to the client that holds its class, and classes are grouped at
    random. ``feddisco``: client 0 gets 1/K of every class and the client that holds the class gets
    the rest; classes are grouped in order and the remainder of a division by K is dropped, so
    balanced classes give clients of equal size.
    """

    variant: Literal["thesis", "feddisco"] = "thesis"
    default_clients: ClassVar[int] = 6

    def partition(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Divide the pool's samples among ``clients`` clients."""
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
        unit = pool.class_counts // clients
        counts = np.zeros((clients, pool.classes), np.int64)
        counts[0] = unit
        counts[groups, np.arange(pool.classes)] = unit * (clients - 1)
        return Partition(owners_by_count(pool, counts, rng.random(len(pool))), clients)
