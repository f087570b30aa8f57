"""What every recipe for skew is: a rule that deals samples out to clients.

A recipe is a frozen dataclass of its options. It sees labels (and the data's natural groups) and
returns one array of sample numbers a client; a distortion also changes the features a client sees.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.errors import UnskewError

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Pool:
    """What a recipe may look at: the labels to deal out, and the natural group of each sample."""

    labels: NDArray[Any]
    classes: int
    groups: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Partition:
    """Who gets which samples; ``notes`` says in words what the recipe could not do as asked."""

    parts: Sequence[Indices]
    notes: tuple[str, ...] = field(default=())

    def checked(self, pool: Pool) -> "Partition":
        """Raise unless the parts are disjoint and within the pool: no recipe may break this."""
        rows = np.concatenate([*self.parts, np.empty(0, np.int64)]).astype(np.int64)
        seen = np.bincount(rows, minlength=len(pool))
        if len(seen) > len(pool) or np.any(seen > 1):
            raise AssertionError("a recipe dealt a sample twice, or one that does not exist")
        return self


class Skew:
    """A recipe. Subclasses are frozen dataclasses and implement :meth:`deal`."""

    def deal(self, pool: Pool, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the pool's samples out to so many clients."""
        raise NotImplementedError

    def clients(self, pool: Pool, asked: int | None) -> int:
        """Return how many clients there will be when ``asked`` were asked for (None: a default)."""
        del pool
        if asked is None:
            return 10
        if asked < 1:
            raise UnskewError(f"clients must be at least 1 (got {asked})")
        return asked

    def distort(
        self, x: NDArray[Any], client: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> NDArray[Any]:
        """Change features by the client that holds them; most recipes do not."""
        del client, clients, rng
        return x
