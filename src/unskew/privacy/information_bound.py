"""The information bound of the FedDisk paper, Eq. 17."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.errors import UnskewError


def information_bound(samples: ArrayLike) -> NDArray[np.float64]:
    """Return kappa for each client: its share of all samples.

    One draw from the mixture of all clients' data tells at most kappa_k times the entropy of
    client k's data about one draw from that client. What this does and does not say is in
    docs/privacy.md.
    """
    counts = np.asarray(samples, np.float64)
    if counts.ndim != 1 or not np.all(np.isfinite(counts) & (counts >= 0)) or not counts.any():
        raise UnskewError("samples must be one number a client, none negative and not all zero")
    shares: NDArray[np.float64] = counts / counts.sum()
    return shares
