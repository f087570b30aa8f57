"""Feature skew: each client's features get a different amount of noise (FedDisk, NIID-Bench)."""

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
"""The number of samples that get their noise at a time, which keeps temporary arrays small."""


@dataclass(frozen=True, config=OPTIONS)
class Noise(Partitioner):
    """Feature skew: Gaussian noise that grows with the client's number, on even parts (FedDisk).

    Client k's noise has the variance level * k/K, and noisy features are clipped to [0, 1].
    With ``kind=std`` that number is the standard deviation, and with ``denominator=K-1`` the last
    client gets the full level; both together are NIID-Bench's code. The noise is drawn once.
    """

    level: Annotated[float, Field(ge=0, le=100)] = 0.3
    kind: Literal["variance", "std"] = "variance"
    denominator: Literal["K", "K-1"] = "K"

    distorts: ClassVar[bool] = True

    def partition(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Divide the pool's samples among ``clients`` clients."""
        return IID().partition(pool, clients, rng)

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
            raise UnskewError("skew 'noise': x must be images or features from 0 to 1; rescale x")
        if x.dtype != np.uint8 and x.dtype.kind != "f":
            raise UnskewError(
                f"skew 'noise': x must be images or features from 0 to 1, not {x.dtype}; "
                "choose another partitioner for text"
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
