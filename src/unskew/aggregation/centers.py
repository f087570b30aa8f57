"""Cluster rows around centres: squared distances, farthest-point seeding, k-means."""

import numpy as np
import torch
from torch import Tensor


def distances_to_centers(rows: Tensor, centers: Tensor) -> Tensor:
    """Return the squared l2 distances, rows x centres.

    They are computed one centre at a time, so that no matrix of differences is stored.
    """
    columns = [
        torch.linalg.vector_norm(rows - center, dim=1, dtype=torch.float64).square()
        for center in centers
    ]
    return torch.stack(columns, 1)


def further_seeds(rows: Tensor, centers: Tensor, number: int) -> Tensor:
    """Add rows to the centres until there are ``number`` of them.

    The first centre is the row nearest to the mean, and each further one is the row farthest from
    all centres so far. A row equal to a centre is never added, so there may be fewer centres.
    """
    if not len(centers):
        nearest = distances_to_centers(rows, rows.mean(0, keepdim=True))[:, 0].argmin()
        centers = rows[nearest : nearest + 1]
    while len(centers) < number:
        gaps = distances_to_centers(rows, centers).amin(1)
        farthest = int(gaps.argmax())
        if gaps[farthest] == 0:
            break
        centers = torch.cat([centers, rows[farthest : farthest + 1]])
    return centers


def k_means(rows: Tensor, number: int, iterations: int = 20) -> Tensor:
    """Return the cluster of each row by Lloyd's algorithm, started from farthest-point seeds."""
    from scipy.cluster.vq import kmeans2  # noqa: PLC0415 (seldom used, slow to load)

    seeds = further_seeds(rows, rows[:0], number)
    _, clusters = kmeans2(rows.numpy(), seeds.numpy(), iter=iterations + 1, minit="matrix")
    _, numbered = np.unique(clusters, return_inverse=True)  # a cluster may have lost all its rows
    return torch.from_numpy(numbered)
