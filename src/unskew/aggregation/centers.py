"""Grouping rows around centres: squared distances, seeds far from each other, k-means."""

import numpy as np
import torch
from torch import Tensor


def squared_distances(rows: Tensor, centers: Tensor) -> Tensor:
    """Return rows x centres; one centre at a time, so that no difference is kept."""
    columns = [
        torch.linalg.vector_norm(rows - center, dim=1, dtype=torch.float64).square()
        for center in centers
    ]
    return torch.stack(columns, 1)


def further_seeds(rows: Tensor, centers: Tensor, number: int) -> Tensor:
    """Return the centres with rows added to them until there are ``number``.

    The first is the row nearest the mean, each next the one farthest from all before; rows that
    are where a centre is already are not added, so there may be fewer.
    """
    if not len(centers):
        nearest = squared_distances(rows, rows.mean(0, keepdim=True))[:, 0].argmin()
        centers = rows[nearest : nearest + 1]
    while len(centers) < number:
        gaps = squared_distances(rows, centers).amin(1)
        farthest = int(gaps.argmax())
        if gaps[farthest] == 0:
            break
        centers = torch.cat([centers, rows[farthest : farthest + 1]])
    return centers


def k_means(rows: Tensor, number: int, iterations: int = 20) -> Tensor:
    """Return the group of each row, after Lloyd's iterations from seeds far from each other."""
    from scipy.cluster.vq import kmeans2  # noqa: PLC0415 (seldom used, slow to load)

    seeds = further_seeds(rows, rows[:0], number)
    _, groups = kmeans2(rows.numpy(), seeds.numpy(), iter=iterations + 1, minit="matrix")
    _, numbered = np.unique(groups, return_inverse=True)  # a group may have lost all its rows
    return torch.from_numpy(numbered)
