"""Density networks that are called with given weights: a client's, or the global ones."""

from dataclasses import dataclass
from functools import lru_cache

from torch import nn

from unskew.models.functional import FunctionalModel
from unskew.models.spec import ModelSpec
from unskew.utils.rng import torch_seeded


@dataclass(frozen=True)
class FromSpec:
    """Builds a stage's network from a spec, whatever the run's network is.

    It is a dataclass, not a closure, so that its repr identifies the network.
    """

    spec: ModelSpec

    def __call__(self, module: nn.Module, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network."""
        del module
        return self.spec.build(shape, classes)


@lru_cache(maxsize=16)
def network_for(spec: ModelSpec, shape: tuple[int, ...]) -> FunctionalModel:
    """Return the network of a spec for samples of a shape, to be called with any weights."""
    # Its initial weights are never used, so torch's generator must not advance for them.
    with torch_seeded(0, "network"):
        return FunctionalModel(spec.build(shape, classes=0))
