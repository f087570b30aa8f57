"""FedSA's greedy clustering of clients, in a form that is the same on every machine."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.float64]
Marks = NDArray[np.bool_]
Ids = NDArray[np.int64]


def greedy_clusters(matches: Counts, coordinates: int, limit: int, threshold: float) -> Ids:
    """Return the cluster of each client, -1 for the unclustered.

    ``matches`` counts on how many of the coordinates two clients agree: whole numbers, so that
    equal scores are equal to the last bit. The move with the best score is made until all clients
    are placed: a free client joins a cluster (score: its mean similarity to the members), or,
    while there are fewer than ``limit`` clusters, two free clients found one (score: their
    similarity). Equal scores: joins come first, then the smallest client ids, then the older
    cluster. Once ``limit`` clusters exist, a best score of at most ``threshold`` ends it.
    """
    clients = len(matches)
    labels: Ids = np.full(clients, -1)
    free: Marks = np.ones(clients, dtype=bool)
    pairs = _Pairs.of(matches)
    sums = np.zeros((clients, min(limit, clients)))
    sizes = np.zeros(min(limit, clients))
    found = 0
    while free.any():
        scores = np.where(free[:, None], sums[:, :found] / sizes[:found], -np.inf)
        best_join = scores.max(initial=-np.inf)
        pair = pairs.best(free) if found < limit else None
        if pair is not None and matches[pair] > best_join:
            members, cluster = list(pair), found
            found += 1
        elif found and (found < limit or best_join / coordinates > threshold):
            client, cluster = divmod(int(scores.argmax()), found)
            members = [client]
        else:
            break
        labels[members] = cluster
        free[members] = False
        sums[:, cluster] += matches[:, members].sum(1)
        sizes[cluster] += len(members)
    return labels


@dataclass
class _Pairs:
    """All pairs of clients, the most similar first, then the smallest ids."""

    first: Ids
    second: Ids

    @classmethod
    def of(cls, matches: Counts) -> "_Pairs":
        first, second = np.triu_indices(len(matches), 1)
        order = np.argsort(-matches[first, second], kind="stable")
        return cls(first[order], second[order])

    def best(self, free: Marks) -> tuple[int, int] | None:
        """Return the best pair of free clients; pairs that are not free are forgotten."""
        if len(self.first) and not (free[self.first[0]] and free[self.second[0]]):
            stays = free[self.first] & free[self.second]
            self.first, self.second = self.first[stays], self.second[stays]
        return (int(self.first[0]), int(self.second[0])) if len(self.first) else None
