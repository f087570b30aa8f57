"""Integer counts with given sums: shares to counts, and counts to owners.

A partitioner for label skew chooses *how many* samples of each class a client gets, a matrix of
clients x classes. The functions here choose which samples those are, without replacement.
"""

import numpy as np
from numpy.typing import NDArray

from unskew.partition.base import NO_CLIENT, Indices, SamplePool

Floats = NDArray[np.float64]


def apportion(weights: NDArray[np.float64] | Indices, totals: Indices) -> Indices:
    """Scale each row of weights to integers whose sum is the row's total.

    Largest remainder method: each entry gets the integer part of its exact share, and the rest goes
    one by one to the largest fractions (the first of equals). A row of zero weights stays zero.
    """
    mass = weights.sum(axis=1, keepdims=True, dtype=np.float64)
    exact = weights * totals[:, None] / np.where(mass > 0, mass, 1)
    whole = np.floor(exact).astype(np.int64)
    left = np.where(mass[:, 0] > 0, totals - whole.sum(axis=1), 0)
    order = np.argsort(whole - exact, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(weights.shape[1])[None, :], axis=1)
    counts: Indices = whole + (rank < left[:, None])
    return counts


def even_sizes(samples: int, clients: int) -> Indices:
    """Split a number of samples into sizes that differ by at most one, the larger ones first."""
    sizes = np.full(clients, samples // clients, np.int64)
    sizes[: samples % clients] += 1
    return sizes


def limit_to_available(demand: Indices, available: Indices) -> Indices:
    """Reduce each column of a demand (clients x classes) to the available samples of the class.

    All clients with a demand are reduced by the same share, and each keeps at least one sample if
    there are enough.
    """
    positive = demand > 0
    first = np.where((positive.sum(axis=0) <= available)[None, :], positive, 0)
    short = demand.sum(axis=0) > available
    rest = first + apportion((demand - first).T, available - first.sum(axis=0)).T
    return np.where(short[None, :], rest, demand)


def fill(shares: Floats, sizes: Indices, available: Indices) -> Indices:
    """Give each client samples by its class shares, as long as samples are available.

    If a class runs out, the client gets more of its other classes, in proportion to their shares.
    A client never gets a class in which it has no share, so it may stay smaller than its size.
    """
    counts = np.zeros(shares.shape, np.int64)
    for _ in range(shares.shape[1] + 1):  # each pass serves all clients or exhausts a class
        left = available - counts.sum(axis=0)
        demand = apportion(shares * (left > 0), sizes - counts.sum(axis=1))
        if not demand.any():
            break
        counts += limit_to_available(demand, left)
    return counts


def owners_by_count(
    pool: SamplePool, counts: Indices, order: NDArray[np.float64] | Indices
) -> Indices:
    """Give client k ``counts[k, c]`` samples of class c and return the owner of each sample.

    Within a class, samples are assigned in increasing ``order`` (random keys give a shuffle).
    """
    clients, classes = counts.shape
    rows = np.lexsort((order, pool.labels))
    unused = pool.class_counts - counts.sum(axis=0)
    counts_by_class = np.concatenate([counts, unused[None, :]]).T
    owners = np.tile(np.append(np.arange(clients), NO_CLIENT), classes)
    owner = np.empty(len(pool), np.int64)
    owner[rows] = np.repeat(owners, counts_by_class.ravel())
    return owner


def owners_by_size(sizes: Indices, samples: int, rng: np.random.Generator) -> Indices:
    """Give client k ``sizes[k]`` random samples of any class; return the owner of each sample."""
    owner = np.full(samples, NO_CLIENT, np.int64)
    owner[rng.permutation(samples)[: sizes.sum()]] = np.repeat(np.arange(len(sizes)), sizes)
    return owner
