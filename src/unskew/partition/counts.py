"""Whole numbers that add up: shares turned into counts, and counts turned into owners.

Every recipe for label skew decides *how many* samples of each class a client gets, a matrix of
clients x classes; which ones they are is settled here, in one place, without replacement.
"""

import numpy as np
from numpy.typing import NDArray

from unskew.partition.base import NOBODY, Indices, SamplePool

Floats = NDArray[np.float64]


def apportion(weights: NDArray[np.float64] | Indices, totals: Indices) -> Indices:
    """Round each row of weights to whole numbers that add up to the row's total.

    Largest remainder: everybody gets the whole part of the exact share, and what is left goes one
    by one to the largest fractions (the first of equals). A row without weight gets nothing.
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
    """Split a number of samples so that sizes differ by at most one, the larger ones first."""
    sizes = np.full(clients, samples // clients, np.int64)
    sizes[: samples % clients] += 1
    return sizes


def within_stock(demand: Indices, stock: Indices) -> Indices:
    """Reduce each column of a demand (clients x classes) to what there is of the class.

    Everybody who asked is cut by the same share, and keeps one sample while there is one for each.
    """
    asked = demand > 0
    first = np.where((asked.sum(axis=0) <= stock)[None, :], asked, 0)
    short = demand.sum(axis=0) > stock
    rest = first + apportion((demand - first).T, stock - first.sum(axis=0)).T
    return np.where(short[None, :], rest, demand)


def fill(shares: Floats, sizes: Indices, stock: Indices) -> Indices:
    """Give each client samples by its class shares, as long as there is stock.

    What a class lacks is made up from the other classes of the same client's shares, in their
    proportions; nobody is given a class it has no share in, so a client may stay too small.
    """
    counts = np.zeros(shares.shape, np.int64)
    for _ in range(shares.shape[1] + 1):  # each pass serves everybody or uses up a class
        left = stock - counts.sum(axis=0)
        demand = apportion(shares * (left > 0), sizes - counts.sum(axis=1))
        if not demand.any():
            break
        counts += within_stock(demand, left)
    return counts


def owners_by_count(
    pool: SamplePool, counts: Indices, order: NDArray[np.float64] | Indices
) -> Indices:
    """Give client k ``counts[k, c]`` samples of class c and return the owner of each sample.

    Within a class the samples are handed out by rising ``order`` (random keys: a shuffle).
    """
    clients, classes = counts.shape
    rows = np.lexsort((order, pool.labels))
    unused = pool.stock - counts.sum(axis=0)
    lots = np.concatenate([counts, unused[None, :]]).T
    takers = np.tile(np.append(np.arange(clients), NOBODY), classes)
    owner = np.empty(len(pool), np.int64)
    owner[rows] = np.repeat(takers, lots.ravel())
    return owner


def deal_sizes(sizes: Indices, samples: int, rng: np.random.Generator) -> Indices:
    """Give each client so many samples at random, whatever their class; return the owners."""
    owner = np.full(samples, NOBODY, np.int64)
    owner[rng.permutation(samples)[: sizes.sum()]] = np.repeat(np.arange(len(sizes)), sizes)
    return owner
