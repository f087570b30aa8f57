"""Which of its samples a client keeps for validation while it learns a density."""

import numpy as np
import torch
from torch import Tensor

from unskew.utils.rng import permutations, stream

_FEWEST = 4
"""With fewer samples than this, none is kept for validation."""


def held_out(client: int, samples: int, share: float) -> Tensor:
    """Mark the samples kept for validation: the same in every stage, round and run."""
    mask = torch.zeros(samples, dtype=torch.bool)
    if samples >= _FEWEST and share > 0:
        order = permutations(
            stream(0, "held out"), np.array([client]), np.array([samples]), epoch=0
        )[0]
        mask[torch.from_numpy(order[: max(1, round(share * samples))])] = True
    return mask


def training_weights(held: Tensor) -> Tensor:
    """Return sample weights that leave the held-out samples out, with mean one."""
    kept = (~held).to(torch.float32)
    return kept / kept.mean()
