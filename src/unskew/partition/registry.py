"""All partitioners by name, and their spec strings: ``dirichlet:alpha=0.1+noise:level=0.3``."""

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
"""Every partitioner by its name in spec strings; :func:`describe` summarises each."""


@dataclass(frozen=True)
class Composed(Partitioner):
    """A base partitioner and distortions that change the features of its clients in turn."""

    base: Partitioner
    distortions: tuple[Partitioner, ...]

    def num_clients(self, pool: SamplePool, requested: int | None) -> int:
        """Return the base partitioner's number of clients."""
        return self.base.num_clients(pool, requested)

    def partition(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Divide the samples by the base partitioner."""
        return self.base.partition(pool, clients, rng)

    def distort(
        self, x: NDArray[Any], client: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> NDArray[Any]:
        """Let every part change the features, in the order of the spec string."""
        for part in (self.base, *self.distortions):
            x = part.distort(x, client, clients, rng)
        return x


def parse_partitioner(text: str) -> Partitioner:
    """Build a partitioner from its spec string; distortions may follow after a plus."""
    first, *others = [specs.build(PARTITIONERS, part, "skew") for part in text.split("+")]
    for part in others:
        if not part.distorts:
            names = ", ".join(name for name, cls in PARTITIONERS.items() if cls.distorts)
            raise UnskewError(
                f"skew {text!r}: {partitioner_spec(part)!r} divides samples and must come first; "
                f"a plus may be followed by: {names}"
            )
    return Composed(first, tuple(others)) if others else first


def partitioner_spec(partitioner: Partitioner) -> str:
    """Return a partitioner's spec string, or its class name if it is not registered."""
    if isinstance(partitioner, Composed):
        return "+".join(map(partitioner_spec, (partitioner.base, *partitioner.distortions)))
    names = {cls: name for name, cls in PARTITIONERS.items()}
    if type(partitioner) not in names:
        return type(partitioner).__name__
    return specs.spec_of(partitioner, names[type(partitioner)])


def describe(name: str) -> str:
    """Return a one-line summary of the partitioner of that name."""
    return (PARTITIONERS[name].__doc__ or "").partition("\n")[0]
