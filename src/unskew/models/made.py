"""MADE (Germain et al. 2015): a masked autoencoder that is a density of binary features.

Every unit has a degree. The output of the feature with degree d depends only on features of
smaller degree, so the product of the outputs' Bernoulli probabilities is a distribution that sums
to 1. Masks are drawn from a seed of their own: all clients share them, and since they can be drawn
again, they neither travel nor are averaged.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.models.bernoulli import DENSITY
from unskew.models.layers import named
from unskew.models.mlp import Widths
from unskew.models.spec import Aim, ModelSpec, Takes
from unskew.utils.rng import generator
from unskew.utils.specs import OPTIONS

Degrees = NDArray[np.int64]
Order = Literal["natural", "random"]


class MaskedLinear(nn.Linear):
    """A linear layer with some connections cut; its mask is a constant, no part of the state."""

    mask: Tensor

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        outputs, inputs = mask.shape
        super().__init__(inputs, outputs)
        values = torch.from_numpy(mask).to(self.weight)
        self.register_buffer("mask", values, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the connections that are left."""
        return F.linear(x, self.weight * self.mask, self.bias)


class Made(nn.Module):
    """Masked layers with ReLU between; ``degrees`` are those of the inputs, then of each layer."""

    def __init__(self, degrees: Sequence[Degrees]) -> None:
        super().__init__()
        self.degrees = tuple(degrees)
        self.goal = DENSITY
        self.layers = named(flatten=nn.Flatten())
        for number, (before, after) in enumerate(pairwise(self.degrees), start=1):
            self.layers.add_module(f"hidden{number}", MaskedLinear(after[:, None] >= before))
            self.layers.add_module(f"relu{number}", nn.ReLU())
        inputs, last = self.degrees[0], self.degrees[-1]
        self.layers.add_module("output", MaskedLinear(inputs[:, None] > last))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logit of each feature of the flattened sample, given those before it."""
        logits: Tensor = self.layers(x)
        return logits


def draw_degrees(
    features: int, widths: Sequence[int], masks: int, order: Order
) -> tuple[Degrees, ...]:
    """Draw the degrees of inputs and hidden layers from nothing but these arguments.

    A hidden unit's lies between the least degree below it (else it would see nothing) and
    ``features - 1`` (else no output could see it). A single feature has nothing to depend on: its
    hidden units are cut off, and its bias is its density.
    """
    degrees: list[Degrees] = [np.arange(1, features + 1)]
    if order == "random":
        degrees = [generator(masks, "made order").permutation(degrees[0])]
    most = max(1, features - 1)
    for layer, width in enumerate(widths):
        least = int(degrees[-1].min())
        degrees.append(generator(masks, "made degrees", layer).integers(least, most + 1, width))
    return tuple(degrees)


@dataclass(frozen=True, config=OPTIONS)
class MADESpec(ModelSpec):
    """A density of the flattened sample, with masks that all clients share."""

    summary: ClassVar[str] = "MADE: a density of features in [0, 1], not a classifier"
    takes: ClassVar[Takes] = "any"
    aim: ClassVar[Aim] = "density"

    hidden: Widths = "30"
    """Widths of the hidden layers, such as 64-32."""
    order: Order = "natural"
    """In which order features are predicted, each from those before it: natural or random."""
    masks: int = 0
    """Seed of the masks, and of a random order."""

    def build(self, shape: tuple[int, ...], classes: int, vocabulary: int | None = None) -> Made:
        """Build the network; it has an output a feature, whatever the classes are."""
        del classes, vocabulary
        widths = [int(width) for width in self.hidden.split("-")]
        return Made(draw_degrees(prod(shape), widths, self.masks, self.order))
