"""The information bound of the FedDisk paper, Eq. 17."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.errors import UnskewError


def information_bound(samples: ArrayLike) -> NDArray[np.float64]:
    """Return kappa for each client: its share of all samples.

    The information that one draw from the mixture of all clients' data contains about one draw
    from client k is at most kappa_k times the entropy of that client's data. docs/privacy.md
    describes what follows from this and what does not.
    """
    counts = np.asarray(samples, np.float64)
    if counts.ndim != 1 or not np.all(np.isfinite(counts) & (counts >= 0)) or not counts.any():
        raise UnskewError("samples must be one number per client, none negative and not all zero")
    shares: NDArray[np.float64] = counts / counts.sum()
    return shares
