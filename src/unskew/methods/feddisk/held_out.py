"""The samples that a client holds out for validation while it trains a density."""

import numpy as np
import torch
from torch import Tensor

from unskew.utils.rng import permutations, stream

_MIN_SAMPLES = 4
"""With fewer samples than this, none is held out."""


def held_out(client: int, samples: int, share: float) -> Tensor:
    """Mark the held-out samples: the same in every stage, round and run."""
    mask = torch.zeros(samples, dtype=torch.bool)
    if samples >= _MIN_SAMPLES and share > 0:
        order = permutations(
            stream(0, "held out"), np.array([client]), np.array([samples]), epoch=0
        )[0]
        mask[torch.from_numpy(order[: max(1, round(share * samples))])] = True
    return mask


def training_weights(held: Tensor) -> Tensor:
    """Return sample weights with mean one that are zero for the held-out samples."""
    kept = (~held).to(torch.float32)
    return kept / kept.mean()
