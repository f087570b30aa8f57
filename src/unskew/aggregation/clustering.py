"""FedSA's greedy clustering of clients, with ties resolved deterministically."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.float64]
Mask = NDArray[np.bool_]
Ids = NDArray[np.int64]


def greedy_clusters(matches: Counts, coordinates: int, limit: int, threshold: float) -> Ids:
    """Return the cluster of each client, -1 for unclustered clients.

    ``matches`` counts the coordinates on which two clients agree; the counts are integers, so
    equal scores are equal to the last bit. Each step makes the move with the best score until all
    clients are assigned: an unassigned client joins a cluster (score: its mean similarity to the
    members), or, while there are fewer than ``limit`` clusters, two unassigned clients form a new
    one (score: their similarity). Ties prefer joins, then the smallest client ids, then the older
    cluster. Once ``limit`` clusters exist, a best score of at most ``threshold`` stops the loop.
    """
    clients = len(matches)
    limit = min(limit, clients)
    labels: Ids = np.full(clients, -1)
    free: Mask = np.ones(clients, dtype=bool)
    pairs = _Pairs.of(matches)
    joins = np.full((clients, limit), -np.inf)
    sums = np.zeros((limit, clients))
    sizes = np.zeros(limit)
    found, remaining = 0, clients
    while remaining:
        client, cluster = divmod(int(joins.argmax()), limit)
        best_join = joins[client, cluster]
        pair = pairs.best(free) if found < limit else None
        members = [client]
        if pair is not None and matches[pair] > best_join:
            members, cluster = list(pair), found
            found += 1
        elif not found or (found == limit and best_join / coordinates <= threshold):
            break
        for member in members:
            labels[member] = cluster
            free[member] = False
            joins[member] = -np.inf
            sums[cluster] += matches[member]
        remaining -= len(members)
        sizes[cluster] += len(members)
        joins[:, cluster] = np.where(free, sums[cluster] / sizes[cluster], -np.inf)
    return labels


@dataclass
class _Pairs:
    """For each client, the most similar client with a larger id, and their similarity.

    A partner that has been assigned is replaced only when its pair has the best score.
    """

    matches: Counts
    partners: Ids
    scores: Counts

    @classmethod
    def of(cls, matches: Counts) -> "_Pairs":
        pairs = cls(matches, np.zeros(len(matches), dtype=np.int64), np.full(len(matches), -np.inf))
        for client in range(len(matches) - 1):
            pairs._set_partner(client, matches[client, client + 1 :])
        return pairs

    def best(self, free: Mask) -> tuple[int, int] | None:
        """Return the most similar pair of free clients; ties go to the smallest ids."""
        while True:
            first = int(self.scores.argmax())
            second = int(self.partners[first])
            if self.scores[first] == -np.inf:
                return None
            if free[first] and free[second]:
                return first, second
            self._find_partner(first, free)

    def _find_partner(self, client: int, free: Mask) -> None:
        later = slice(client + 1, None)
        both = free[later] & free[client]
        self._set_partner(client, np.where(both, self.matches[client, later], -np.inf))

    def _set_partner(self, client: int, scores: Counts) -> None:
        offset = int(scores.argmax())
        self.partners[client] = client + 1 + offset
        self.scores[client] = scores[offset]
