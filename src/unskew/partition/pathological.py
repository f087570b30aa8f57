"""Label skew by whole classes, as in PFLlib: groups of clients hold the same classes."""

from math import ceil
from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.partition.base import Indices, Partition, Partitioner, SamplePool
from unskew.partition.counts import even_sizes, owners_by_count
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS)
class Pathological(Partitioner):
    """Each client holds only a few classes, and groups of clients hold the same ones (PFLlib).

    A class goes to the first ceil(K/C * classes_per_client) clients that may still take one, so
    with 20 clients, 10 classes and 2 classes per client, clients 0 to 3 hold classes 0 and 1, and
    so on. Its samples are split at random: each part is between a tenth of the even part and the
    even part, and the last client takes the rest. With ``balance`` they are split evenly. No part
    is smaller than ``least`` divided by the number of classes; ``least`` defaults to the smaller
    of 40 and half the even share N/K.
    """

    classes_per_client: Annotated[int, Field(ge=1)] = 2
    balance: bool = False
    least: Annotated[int | None, Field(ge=0)] = None

    def partition(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Divide the pool's samples among ``clients`` clients."""
        if self.classes_per_client > pool.classes:
            raise UnskewError(
                f"skew 'pathological': classes_per_client must be at most {pool.classes}, "
                f"the number of classes (got {self.classes_per_client})"
            )
        least = min(40, len(pool) // (2 * clients)) if self.least is None else self.least
        counts = np.zeros((clients, pool.classes), np.int64)
        for label, holders in enumerate(self._holders(pool.classes, clients)):
            if len(holders):
                counts[holders, label] = self._split(
                    int(pool.class_counts[label]), len(holders), least // pool.classes, rng
                )
        owner = owners_by_count(pool, counts, rng.random(len(pool)))
        unheld = int(np.count_nonzero(counts.sum(axis=0) < pool.class_counts))
        note = f"no client holds {unheld} of the classes: raise clients or classes_per_client"
        return Partition(owner, clients, notes=(note,) if unheld else ())

    def _holders(self, classes: int, clients: int) -> list[Indices]:
        """List the clients that hold each class, with one place reserved for each later class."""
        free = np.full(clients, self.classes_per_client)
        usual = ceil(clients / classes * self.classes_per_client)
        holders = []
        for later in reversed(range(classes)):
            count = min(usual, max(int(free.sum()) - later, 1))
            chosen = np.flatnonzero(free)[:count]
            free[chosen] -= 1
            holders.append(chosen)
        return holders

    def _split(self, samples: int, holders: int, least: int, rng: np.random.Generator) -> Indices:
        """Split one class among its holders."""
        even = samples // holders
        low = max(even // 10, least)
        if self.balance or low >= even:
            return even_sizes(samples, holders)
        sizes = rng.integers(low, even, holders)
        sizes[-1] = samples - sizes[:-1].sum()
        return sizes
