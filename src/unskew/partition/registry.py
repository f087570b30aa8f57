"""All recipes by name, and how to spell them: ``dirichlet:alpha=0.1+noise:level=0.3``."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.errors import UnskewError
from unskew.partition.base import Partition, Partitioner, SamplePool
from unskew.partition.delft import NIID2
from unskew.partition.dirichlet import NIID1, Dirichlet
from unskew.partition.feature_noise import Noise
from unskew.partition.n_classes import NClasses
from unskew.partition.natural import Natural
from unskew.partition.pathological import Pathological
from unskew.partition.quantity import IID, Quantity
from unskew.partition.shards import EtaShards, Shards
from unskew.utils import specs

PARTITIONERS: dict[str, type[Partitioner]] = {
    "iid": IID,
    "dirichlet": Dirichlet,
    "pathological": Pathological,
    "n-classes": NClasses,
    "eta-shards": EtaShards,
    "shards": Shards,
    "niid-1": NIID1,
    "niid-2": NIID2,
    "quantity": Quantity,
    "noise": Noise,
    "natural": Natural,
}
"""Every recipe by the name it is spelled with; :func:`describe` says what each does."""


@dataclass(frozen=True)
class Composed(Partitioner):
    """A partition with distortions on top: the first deals, the others change features in turn."""

    partition: Partitioner
    distortions: tuple[Partitioner, ...]

    def clients(self, pool: SamplePool, asked: int | None) -> int:
        """Return how many clients the partition makes."""
        return self.partition.clients(pool, asked)

    def deal(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Deal as the partition does."""
        return self.partition.deal(pool, clients, rng)

    def distort(
        self, x: NDArray[Any], client: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> NDArray[Any]:
        """Let every part change the features, in the order they are spelled."""
        for part in (self.partition, *self.distortions):
            x = part.distort(x, client, clients, rng)
        return x


def parse_partitioner(text: str) -> Partitioner:
    """Make the recipe a spelling names; distortions may follow a partition after a plus."""
    first, *others = [specs.build(PARTITIONERS, part, "skew") for part in text.split("+")]
    for part in others:
        if not part.distorts:
            names = ", ".join(name for name, cls in PARTITIONERS.items() if cls.distorts)
            raise UnskewError(
                f"skew {text!r}: {partitioner_spec(part)!r} must come first; "
                f"after a plus there can be: {names}"
            )
    return Composed(first, tuple(others)) if others else first


def partitioner_spec(skew: Partitioner) -> str:
    """Write a recipe as its spelling; one that is not in the table is called by its class."""
    if isinstance(skew, Composed):
        return "+".join(map(partitioner_spec, (skew.partition, *skew.distortions)))
    names = {cls: name for name, cls in PARTITIONERS.items()}
    if type(skew) not in names:
        return type(skew).__name__
    return specs.spec_of(skew, names[type(skew)])


def describe(name: str) -> str:
    """Say in one line what the recipe of that name does."""
    return (PARTITIONERS[name].__doc__ or "").partition("\n")[0]
