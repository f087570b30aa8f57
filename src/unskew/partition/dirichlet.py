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

MAX_SHORT = 20
"""With more clients below the minimum size than this, only about one draw in e^20 would succeed."""


@dataclass(frozen=True, config=OPTIONS)
class Dirichlet(Partitioner):
    """Label and size skew: each class is split among the clients by Dirichlet(alpha) shares.

    With a small ``alpha`` few clients hold each class. With ``balance`` a client that already has
    its even share N/K of samples takes no further class. If a client gets fewer than ``min_size``
    samples, all shares are drawn again, at most ``retries`` times. Without a ``min_size`` the
    minimum is the smaller of 10 and half the even share, and if no draw reaches it, samples move
    from larger clients until every client has that many.
    """

    alpha: Annotated[float, Field(gt=0, le=1e6)] = 0.1
    min_size: Annotated[int | None, Field(ge=0)] = None
    balance: bool = False
    retries: Annotated[int, Field(ge=0, le=10_000)] = 100

    def partition(self, pool: SamplePool, clients: int, rng: np.random.Generator) -> Partition:
        """Divide the pool's samples among ``clients`` clients."""
        target = min(10, len(pool) // (2 * clients)) if self.min_size is None else self.min_size
        if target * clients > len(pool):
            raise UnskewError(
                f"skew: min_size must be at most {len(pool) // clients} "
                f"for {len(pool)} samples and {clients} clients (got {target})"
            )
        counts, short = self._draw_with_retries(pool.class_counts, clients, target, rng)
        owner = owners_by_count(pool, counts, rng.random(len(pool)))
        if not short:
            return Partition(owner, clients)
        if self.min_size is not None:
            raise UnskewError(
                f"skew: no draw gave each of {clients} clients {target} samples "
                f"({short} had fewer): lower min_size, raise alpha or retries, "
                "or ask for fewer clients"
            )
        note = f"{short} clients were topped up to {target} samples from the larger ones"
        owner = _topped_up(owner, counts.sum(axis=1), target, rng)
        return Partition(owner, clients, notes=(note,))

    def _draw_with_retries(
        self, class_counts: Indices, clients: int, target: int, rng: np.random.Generator
    ) -> tuple[Indices, int]:
        """Draw until every client has ``target`` samples; return the last draw's counts.

        The second value is the number of clients with fewer.
        """
        for _ in range(self.retries + 1):
            counts = self._draw(class_counts, clients, rng)
            short = int(np.count_nonzero(counts.sum(axis=1) < target))
            if short == 0 or short > MAX_SHORT:
                break
        return counts, short

    def _draw(self, class_counts: Indices, clients: int, rng: np.random.Generator) -> Indices:
        """Draw how many samples of each class each client gets."""
        shares = rng.dirichlet(np.full(clients, self.alpha), size=len(class_counts))
        if not self.balance:
            return _split_by_shares(shares, class_counts).T
        counts = np.zeros((clients, len(class_counts)), np.int64)
        below_even = np.ones(clients, np.bool_)
        for label, samples in enumerate(class_counts):
            if not samples:  # all clients may have their even share by then, which leaves no shares
                continue
            open_shares = shares[label] * below_even
            if not open_shares.any():  # the remaining shares underflowed to zero
                open_shares = below_even.astype(np.float64)
            counts[:, label] = _split_by_shares(open_shares[None, :], np.array([samples]))[0]
            below_even = counts.sum(axis=1) < class_counts.sum() / clients
        return counts


@dataclass(frozen=True, config=OPTIONS)
class NIID1(Dirichlet):
    """Delft's NIID-1: Dirichlet(0.5) over 10 clients with at least 40 samples each.

    This is the thesis' version; ``balance=true,min_size=10`` is FedDisco's NIID-1.
    """

    alpha: Annotated[float, Field(gt=0, le=1e6)] = 0.5
    min_size: Annotated[int | None, Field(ge=0)] = 40


def _split_by_shares(shares: Floats, samples: Indices) -> Indices:
    """Split each row's samples at the cumulative shares, rounded to whole samples.

    Dividing by the last sum makes it exactly one, so no sample is lost and none goes to a client
    whose share is zero.
    """
    sums = np.cumsum(shares, axis=1)
    ends = np.rint(sums / sums[:, -1:] * samples[:, None]).astype(np.int64)
    return np.diff(ends, axis=1, prepend=0)


def _topped_up(owner: Indices, sizes: Indices, target: int, rng: np.random.Generator) -> Indices:
    """Give every client ``target`` samples, taken from clients that have more.

    The samples that clients have beyond the target are sorted by client, and each client below
    the target takes a run of consecutive ones; the runs are spread evenly. A client that had no
    samples then has the labels of one other client and not those of the pool, which keeps the skew.
    """
    order = np.lexsort((rng.random(len(owner)), owner))
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    spare = order[rank >= target]
    spare = spare[np.argsort(rng.permutation(len(sizes))[owner[spare]], kind="stable")]
    small = np.flatnonzero(sizes < target)
    missing = target - sizes[small]
    gaps = (len(spare) - missing.sum()) * np.arange(len(small)) // len(small)
    owner = owner.copy()
    owner[spare[np.arange(missing.sum()) + np.repeat(gaps, missing)]] = np.repeat(small, missing)
    return owner
