"""Weights on the probability simplex: the nearest, and those with the least quadratic form."""

import torch
from torch import Tensor


def nearest_on_simplex(values: Tensor) -> Tensor:
    """Return the closest non-negative numbers that sum to one.

    All values are shifted by the same amount, and negative results become 0.
    """
    ordered = values.sort(descending=True).values
    excess = ordered.cumsum(0) - 1
    ranks = torch.arange(1, len(values) + 1, dtype=values.dtype)
    last = int((ordered * ranks > excess).nonzero().max())
    return (values - excess[last] / ranks[last]).clamp(min=0)


def least_quadratic(matrix: Tensor) -> Tensor:
    """Return the weights a, non-negative and with the sum one, that minimise ``a' matrix a``.

    The matrix is symmetric and positive semidefinite. With ``matrix = R'R``, the minimum of
    ``||R a||² + (sum a - 1)²`` over non-negative a is proportional to it, since along any ray the
    best length makes that smaller the smaller the form is.
    """
    # Importing scipy here is slow, and a Flower node imports all methods for every message.
    from scipy.optimize import nnls  # noqa: PLC0415

    values, vectors = torch.linalg.eigh(matrix.double())
    scale = float(values.max().clamp(min=1e-300))
    root = (values.clamp(min=0) / scale).sqrt()[:, None] * vectors.T
    rows = torch.cat([root, root.new_ones(1, len(matrix))])
    target = torch.zeros(len(rows), dtype=torch.float64)
    target[-1] = 1
    try:
        found = torch.from_numpy(nnls(rows.numpy(), target.numpy(), maxiter=30 * len(matrix))[0])
    except RuntimeError:  # too many iterations
        found = torch.ones(len(matrix), dtype=torch.float64)
    return found / found.sum()
