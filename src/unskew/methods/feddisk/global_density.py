"""The global density on a client; all clients have the same one, so they share what it yields."""

from functools import lru_cache
from math import prod

import torch
from torch import Tensor

from unskew.densities.models import network_for
from unskew.densities.sampling import draw
from unskew.models.made import MADESpec
from unskew.utils.rng import torch_generator


def shared_copy(density: Tensor) -> Tensor:
    """Return the density's parameters in memory that all clients share.

    A cohort that is trained together then reads them once, both before and after a resume.
    """
    return _tensor(density.numpy().tobytes())


@lru_cache(maxsize=2)
def _tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.float32)


def samples_from(spec: MADESpec, shape: tuple[int, ...], density: Tensor, count: int) -> Tensor:
    """Return binary samples of the density, one per row; the same for all clients."""
    return _samples(spec, shape, density.numpy().tobytes(), count)


@lru_cache(maxsize=2)
def _samples(spec: MADESpec, shape: tuple[int, ...], content: bytes, count: int) -> Tensor:
    network = network_for(spec, shape)
    return draw(network, _tensor(content), count, torch_generator(0, "samples of the density"))


@lru_cache(maxsize=2)
def thresholds(shape: tuple[int, ...], count: int) -> Tensor:
    """Return rows of uniform numbers in [0, 1) by which grey levels are made binary.

    A pixel becomes one if its grey level exceeds the threshold. Its grey level is then the
    probability of a one, as in the density's loss, and the binary sample is comparable with samples
    of the density.
    """
    return torch.rand(count, prod(shape), generator=torch_generator(0, "thresholds"))
