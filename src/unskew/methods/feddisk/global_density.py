"""The global density on a client: every client has the same, so what follows from it is shared."""

from functools import lru_cache
from math import prod

import torch
from torch import Tensor

from unskew.densities.models import network_for
from unskew.densities.sampling import draw
from unskew.models.made import MADESpec
from unskew.utils.rng import torch_generator


def one_for_all(density: Tensor) -> Tensor:
    """Return the same numbers, for all clients in the same memory.

    A cohort trained together then reads them once, in the same way before and after a resume.
    """
    return _tensor(density.numpy().tobytes())


@lru_cache(maxsize=2)
def _tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.float32)


def drawn_from(recipe: MADESpec, shape: tuple[int, ...], density: Tensor, count: int) -> Tensor:
    """Return samples of the density, rows of zeros and ones: the same for everyone who asks."""
    return _drawn(recipe, shape, density.numpy().tobytes(), count)


@lru_cache(maxsize=2)
def _drawn(recipe: MADESpec, shape: tuple[int, ...], content: bytes, count: int) -> Tensor:
    network = network_for(recipe, shape)
    return draw(network, _tensor(content), count, torch_generator(0, "samples of the density"))


@lru_cache(maxsize=2)
def thresholds(shape: tuple[int, ...], count: int) -> Tensor:
    """Return rows of numbers in [0, 1): grey levels above them are ones, the others zeros.

    So a grey level is the chance of a one, as in the density's loss, and a sample becomes one that
    can be compared with the density's own.
    """
    return torch.rand(count, prod(shape), generator=torch_generator(0, "thresholds"))
