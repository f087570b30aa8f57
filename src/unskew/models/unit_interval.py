"""The check that features are between 0 and 1, as densities of grey levels need."""

import numpy as np
from torch import Tensor

from unskew.data.columns import Array
from unskew.errors import UnskewError


def check_unit_interval(x: Array | Tensor, what: str) -> None:
    """Raise if features are outside [0, 1]; bytes are always accepted, since they are rescaled.

    Outside this range the Bernoulli loss has no lower bound, and training would diverge. The check
    reads the memory twice, so call it once per data set, not in every step.
    """
    array = x.detach().cpu().numpy() if isinstance(x, Tensor) else x
    if array.dtype == np.uint8 or array.size == 0:
        return
    low, high = array.min(), array.max()
    if not (low >= 0 and high <= 1):
        raise UnskewError(
            f"{what} must lie between 0 and 1 for a Bernoulli density (got {low:g} to {high:g}); "
            "scale the features, or give bytes"
        )
