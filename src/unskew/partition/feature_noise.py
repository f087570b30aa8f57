"""Feature skew: every client sees its samples through more or less noise (FedDisk, NIID-Bench)."""

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.partition.base import Partition, Partitioner, SamplePool
from unskew.partition.quantity import IID
from unskew.utils.specs import OPTIONS

BLOCK = 4096
"""Samples that get their noise at a time, to keep temporary arrays small."""


@dataclass(frozen=True, config=OPTIONS)
class Noise(Partitioner):
    """Feature skew: Gaussian noise that grows with the client's number, on even parts (FedDisk).

    Client k's noise has the variance level * k/K, cut off so that features stay in [0, 1].
    ``kind=std`` makes that number the standard deviation, and ``denominator=K-1`` lets the last
    client reach the full level; both together are NIID-Bench's code. Noise is drawn once.
    """

    level: Annotated[float, Field(ge=0, le=100)] = 0.3
    kind: Literal["variance", "std"] = "variance"
    denominator: Literal["K", "K-1"] = "K"

    distorts: ClassVar[bool] = True

    def deal(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the pool's samples out to so many clients."""
        return IID().deal(pool, clients, rng)

    def deviations(self, clients: int) -> NDArray[np.float64]:
        """Return the standard deviation of each client's noise."""
        steps = clients if self.denominator == "K" else max(clients - 1, 1)
        spread = self.level * np.arange(clients) / steps
        return spread if self.kind == "std" else np.sqrt(spread)

    def distort(
        self, x: NDArray[Any], client: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> NDArray[Any]:
        """Add each client's noise; the result is float32 in [0, 1]."""
        if x.dtype.kind == "f" and (x.min(initial=0) < 0 or x.max(initial=1) > 1):
            raise UnskewError("skew 'noise': x must be images or features from 0 to 1; rescale it")
        if x.dtype != np.uint8 and x.dtype.kind != "f":
            raise UnskewError(
                f"skew 'noise': x must be images or features from 0 to 1, not {x.dtype}; "
                "choose another skew for text"
            )
        spread = self.deviations(clients).astype(np.float32)[client]
        spread = spread.reshape(-1, *[1] * (x.ndim - 1))
        noisy = np.empty(x.shape, np.float32)
        for start in range(0, len(x), BLOCK):
            rows = slice(start, start + BLOCK)
            block = unit_interval(x[rows])
            block = block + spread[rows] * rng.standard_normal(block.shape, dtype=np.float32)
            noisy[rows] = np.clip(block, 0, 1)
        return noisy


def unit_interval(x: NDArray[Any]) -> NDArray[np.float32]:
    """Turn uint8 images into float32 in [0, 1]; other features only change their type."""
    values = x.astype(np.float32)
    return values / np.float32(255) if x.dtype == np.uint8 else values
