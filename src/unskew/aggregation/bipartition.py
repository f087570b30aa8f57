"""Splitting clients in two by the directions of their updates."""

import torch
from torch import Tensor


def cosines(rows: Tensor) -> Tensor:
    """Return the cosine of every two rows; a row of zeros has the cosine 0 with all others."""
    unit = unit_rows(rows)
    return (unit @ unit.T).clamp(-1, 1)


def unit_rows(rows: Tensor) -> Tensor:
    """Scale each row to length one, however short it is; a row of zeros stays."""
    norms = rows.norm(dim=1, keepdim=True)
    return rows / torch.where(norms > 0, norms, 1)


def bipartition(similarity: Tensor) -> Tensor:
    """Mark the smaller of the two parts whose largest similarity across is the smallest.

    Joining the most similar two until two parts are left (single linkage) finds exactly that. Of
    two parts of one size the first row's stays.
    """
    # Loading these takes long, and a Flower node loads all methods for every message.
    from scipy.cluster.hierarchy import cut_tree, linkage  # noqa: PLC0415
    from scipy.spatial.distance import squareform  # noqa: PLC0415

    distances = 1 - (similarity + similarity.T) / 2
    distances.fill_diagonal_(0)
    tree = linkage(squareform(distances.numpy(), checks=False), method="single")
    marked = torch.from_numpy(cut_tree(tree, [2])[:, 0] == 1)  # ties are cut too
    if int(marked.sum()) * 2 == len(marked):
        return ~marked if bool(marked[0]) else marked
    return marked if int(marked.sum()) * 2 < len(marked) else ~marked
