"""MADE (Germain et al. 2015): a masked autoencoder that is a density of binary features.

Every unit has a degree. The output of the feature with degree d depends only on features of
smaller degree, so the product of the outputs' Bernoulli probabilities is a distribution that sums
to 1. Masks are drawn from a separate seed that all clients share, so they are neither sent nor
averaged.
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

from unskew.models.bernoulli import DENSITY_GOAL
from unskew.models.layers import named
from unskew.models.mlp import Widths
from unskew.models.spec import Aim, ModelSpec, Takes
from unskew.utils.rng import generator
from unskew.utils.specs import OPTIONS

Degrees = NDArray[np.int64]
Order = Literal["natural", "random"]


class MaskedLinear(nn.Linear):
    """A linear layer with masked connections; the mask is a constant, not part of the state."""

    mask: Tensor

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        outputs, inputs = mask.shape
        super().__init__(inputs, outputs)
        values = torch.from_numpy(mask).to(self.weight)
        self.register_buffer("mask", values, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the unmasked connections."""
        return F.linear(x, self.weight * self.mask, self.bias)


class MADE(nn.Module):
    """Masked layers with ReLU between; ``degrees`` are those of the inputs, then of each layer."""

    def __init__(self, degrees: Sequence[Degrees]) -> None:
        super().__init__()
        self.degrees = tuple(degrees)
        self.goal = DENSITY_GOAL
        self.layers = named(flatten=nn.Flatten())
        for number, (before, after) in enumerate(pairwise(self.degrees), start=1):
            self.layers.add_module(f"hidden{number}", MaskedLinear(after[:, None] >= before))
            self.layers.add_module(f"relu{number}", nn.ReLU())
        inputs, last = self.degrees[0], self.degrees[-1]
        self.layers.add_module("output", MaskedLinear(inputs[:, None] > last))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logit of each feature of the flattened sample, given the previous ones."""
        logits: Tensor = self.layers(x)
        return logits


def draw_degrees(
    features: int, widths: Sequence[int], masks: int, order: Order
) -> tuple[Degrees, ...]:
    """Draw the degrees of inputs and hidden layers; they depend on these arguments alone.

    A hidden unit's degree is between the least degree of the layer below (else it would have no
    input) and ``features - 1`` (else it would have no output). A single feature depends on
    nothing: its hidden units are disconnected, and its bias is its density.
    """
    degrees: list[Degrees] = [np.arange(1, features + 1)]
    if order == "random":
        degrees = [generator(masks, "made order").permutation(degrees[0])]
    highest = max(1, features - 1)
    for layer, width in enumerate(widths):
        lowest = int(degrees[-1].min())
        drawn = generator(masks, "made degrees", layer).integers(lowest, highest + 1, width)
        degrees.append(drawn)
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
    """The order in which features are predicted from the previous ones: natural or random."""
    masks: int = 0
    """Seed of the masks, and of a random order."""

    def build(self, shape: tuple[int, ...], classes: int, vocabulary: int | None = None) -> MADE:
        """Build the network; it has one output per feature, whatever the classes are."""
        del classes, vocabulary
        widths = [int(width) for width in self.hidden.split("-")]
        return MADE(draw_degrees(prod(shape), widths, self.masks, self.order))
