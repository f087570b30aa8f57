"""Split clients into two groups by the directions of their updates."""

import torch
from torch import Tensor


def cosines(rows: Tensor) -> Tensor:
    """Return the cosine similarity of every pair of rows; a row of zeros is 0 to all others."""
    unit = unit_rows(rows)
    return (unit @ unit.T).clamp(-1, 1)


def unit_rows(rows: Tensor) -> Tensor:
    """Scale each row to length one, however short it is; a row of zeros stays."""
    norms = rows.norm(dim=1, keepdim=True)
    return rows / torch.where(norms > 0, norms, 1)


def bipartition(similarity: Tensor) -> Tensor:
    """Return a mask of the smaller of two groups whose largest cross-similarity is minimal.

    Single linkage, which merges the most similar groups until two are left, finds exactly this
    split. If both groups have the same size, the mask excludes the first row.
    """
    # Importing scipy here is slow, and a Flower node imports all methods for every message.
    from scipy.cluster.hierarchy import cut_tree, linkage  # noqa: PLC0415
    from scipy.spatial.distance import squareform  # noqa: PLC0415

    distances = 1 - (similarity + similarity.T) / 2
    distances.fill_diagonal_(0)
    tree = linkage(squareform(distances.numpy(), checks=False), method="single")
    mask = torch.from_numpy(cut_tree(tree, [2])[:, 0] == 1)  # cut_tree also splits ties
    if int(mask.sum()) * 2 == len(mask):
        return ~mask if bool(mask[0]) else mask
    return mask if int(mask.sum()) * 2 < len(mask) else ~mask
