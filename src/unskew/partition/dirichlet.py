"""Label skew by the Dirichlet distribution: the usual benchmark, and Delft's NIID-1.

Hsu, Qi and Brown (2019), "Measuring the effects of non-identical data distribution"; the option
``balance`` is that of Yurochkin et al. (2019), which FedDisco and PFLlib use.
"""

from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.partition.base import Indices, Partition, Partitioner, SamplePool
from unskew.partition.counts import Floats, owners_by_count
from unskew.utils.specs import OPTIONS

HOPELESS = 20
"""With so many clients too small, about one draw in e^20 would do: trying on is vain."""


@dataclass(frozen=True, config=OPTIONS)
class Dirichlet(Partitioner):
    """Label and size skew: each class is split among the clients by Dirichlet(alpha) shares.

    A small ``alpha`` gives a class to few clients. With ``balance`` a client that already has its
    even share N/K of samples takes no further class. If a client ends with fewer than
    ``min_size`` samples everything is drawn again, at most ``retries`` times. Without a
    ``min_size`` the aim is the smaller of 10 and half the even share, and when the draws
    cannot reach it, larger clients give up samples until everybody has that many.
    """

    alpha: Annotated[float, Field(gt=0, le=1e6)] = 0.1
    min_size: Annotated[int | None, Field(ge=0)] = None
    balance: bool = False
    retries: Annotated[int, Field(ge=0, le=10_000)] = 100

    def deal(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Deal the pool's samples out to so many clients."""
        target = min(10, len(pool) // (2 * clients)) if self.min_size is None else self.min_size
        if target * clients > len(pool):
            raise UnskewError(
                f"skew: min_size must be at most {len(pool) // clients} "
                f"for {len(pool)} samples and {clients} clients (got {target})"
            )
        counts, short = self._best_draw(pool.stock, clients, target, rng)
        owner = owners_by_count(pool, counts, rng.random(len(pool)))
        if not short:
            return Partition(owner, clients)
        if self.min_size is not None:
            raise UnskewError(
                f"skew: no draw gave each of {clients} clients {target} samples "
                f"({short} had fewer): lower min_size, raise alpha or retries, "
                "or take fewer clients"
            )
        note = f"{short} clients were topped up to {target} samples from the larger ones"
        owner = _topped_up(owner, counts.sum(axis=1), target, rng)
        return Partition(owner, clients, notes=(note,))

    def _best_draw(
        self, stock: Indices, clients: int, target: int, rng: np.random.Generator
    ) -> tuple[Indices, int]:
        """Draw until every client reaches the target; return the draw and how many do not."""
        for _ in range(self.retries + 1):
            counts = self._draw(stock, clients, rng)
            short = int(np.count_nonzero(counts.sum(axis=1) < target))
            if short == 0 or short > HOPELESS:
                break
        return counts, short

    def _draw(self, stock: Indices, clients: int, rng: np.random.Generator) -> Indices:
        """Draw how many samples of each class each client gets."""
        shares = rng.dirichlet(np.full(clients, self.alpha), size=len(stock))
        if not self.balance:
            return _cut(shares, stock).T
        counts = np.zeros((clients, len(stock)), np.int64)
        room = np.ones(clients, np.bool_)
        for label, samples in enumerate(stock):
            if not samples:  # perhaps all clients are full already, and nobody has a share
                continue
            open_shares = shares[label] * room
            if not open_shares.any():  # all shares left were too small for a float
                open_shares = room.astype(np.float64)
            counts[:, label] = _cut(open_shares[None, :], np.array([samples]))[0]
            room = counts.sum(axis=1) < stock.sum() / clients
        return counts


@dataclass(frozen=True, config=OPTIONS)
class NIID1(Dirichlet):
    """Delft's NIID-1: Dirichlet(0.5) over 10 clients with at least 40 samples each.

    This is the thesis' reading; ``balance=true,min_size=10`` is FedDisco's of the same name.
    """

    alpha: Annotated[float, Field(gt=0, le=1e6)] = 0.5
    min_size: Annotated[int | None, Field(ge=0)] = 40


def _cut(shares: Floats, samples: Indices) -> Indices:
    """Cut each row's samples at the cumulative shares, rounded to whole samples.

    Dividing by the last sum makes it exactly one, so no sample is lost and none goes to a client
    whose share is zero.
    """
    sums = np.cumsum(shares, axis=1)
    cuts = np.rint(sums / sums[:, -1:] * samples[:, None]).astype(np.int64)
    return np.diff(cuts, axis=1, prepend=0)


def _topped_up(owner: Indices, sizes: Indices, target: int, rng: np.random.Generator) -> Indices:
    """Give every client the target, out of what the others have beyond it.

    Whatever others can spare stands in one line, client by client, and each client that lacks
    some takes a run of it; the runs are spread over the line. So a client that had nothing looks
    like one other client and not like the pool, which keeps the skew.
    """
    order = np.lexsort((rng.random(len(owner)), owner))
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    line = order[rank >= target]
    line = line[np.argsort(rng.permutation(len(sizes))[owner[line]], kind="stable")]
    takers = np.flatnonzero(sizes < target)
    lacking = target - sizes[takers]
    gaps = (len(line) - lacking.sum()) * np.arange(len(takers)) // len(takers)
    owner = owner.copy()
    owner[line[np.arange(lacking.sum()) + np.repeat(gaps, lacking)]] = np.repeat(takers, lacking)
    return owner
