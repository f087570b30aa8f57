"""Partitioners that ignore labels: clients of equal size, and clients of very different size."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.partition.base import Partition, Partitioner, SamplePool
from unskew.partition.counts import apportion, even_sizes, owners_by_size
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS)
class IID(Partitioner):
    """No skew: samples are shuffled and divided evenly; sizes differ by at most one."""

    def partition(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Divide the pool's samples among ``clients`` clients."""
        return Partition(owners_by_size(even_sizes(len(pool), clients), len(pool), rng), clients)


@dataclass(frozen=True, config=OPTIONS)
class Quantity(Partitioner):
    """Clients of very different size, by a log-normal or a Zipf law, labels at random.

    Every client first gets ``min_size`` samples, and the rest is divided by the law. ``lognormal``
    draws the shares as exp(sigma z) with z standard normal; with ``zipf`` client k's share is
    proportional to 1/(k + 1)^exponent, so client 0 is the largest.
    """

    law: Literal["lognormal", "zipf"] = "lognormal"
    sigma: Annotated[float, Field(ge=0, le=20)] = 1.0
    exponent: Annotated[float, Field(ge=0, le=20)] = 1.0
    min_size: Annotated[int, Field(ge=0)] = 1

    def partition(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Divide the pool's samples among ``clients`` clients."""
        rest = len(pool) - clients * self.min_size
        if rest < 0:
            raise UnskewError(
                f"skew 'quantity': min_size must be at most {len(pool) // clients} "
                f"for {len(pool)} samples and {clients} clients (got {self.min_size})"
            )
        if self.law == "zipf":
            shares = np.arange(1, clients + 1, dtype=np.float64) ** -self.exponent
        else:
            logs = self.sigma * rng.standard_normal(clients)
            shares = np.exp(logs - logs.max())
        sizes = self.min_size + apportion(shares[None, :], np.array([rest]))[0]
        return Partition(owners_by_size(sizes, len(pool), rng), clients)
