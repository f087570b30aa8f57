"""Normalisation layers by name, so that every network offers the same choice.

BatchNorm's running statistics differ between clients with skewed data; GroupNorm has none, which
is all that the method "Fed-GN" changes.
"""

from typing import Annotated, Literal

from torch import nn

from unskew.models.spec import ModelSpec
from unskew.utils.specs import NONE_IS_A_WORD

Norm = Annotated[Literal["batch", "group", "layer", "none"], NONE_IS_A_WORD]
"""Normalisation over the batch, over groups of channels, over all channels, or none."""

MAX_GROUPS = 32
MIN_IMAGE_GROUP = 2
# A vector has one value per channel: groups of two would always be normalised to -1 and 1.
MIN_VECTOR_GROUP = 8


class Normalised(ModelSpec):
    """A network whose normalisation is an option."""

    norm: Norm
    """Normalisation layers: batch, group, layer or none."""


def image_norm(kind: Norm, channels: int) -> nn.Module:
    """Return the layer that normalises images of ``channels`` channels."""
    match kind:
        case "batch":
            return nn.BatchNorm2d(channels)
        case "group":
            return nn.GroupNorm(groups(channels, MIN_IMAGE_GROUP), channels)
        case "layer":
            return nn.GroupNorm(1, channels)
        case "none":
            return nn.Identity()


def vector_norm(kind: Norm, width: int) -> nn.Module:
    """Return the layer that normalises vectors of ``width`` values."""
    match kind:
        case "batch":
            return nn.BatchNorm1d(width)
        case "group":
            return nn.GroupNorm(groups(width, MIN_VECTOR_GROUP), width)
        case "layer":
            return nn.LayerNorm(width)
        case "none":
            return nn.Identity()


def groups(channels: int, min_size: int) -> int:
    """Return the largest number of equal groups: at most 32, of at least ``min_size`` channels."""
    largest = max(1, min(MAX_GROUPS, channels // min_size))
    return next(count for count in range(largest, 0, -1) if channels % count == 0)
