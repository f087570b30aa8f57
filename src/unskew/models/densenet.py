"""DenseNet-121 (Huang et al. 2017) for small images: a 3x3 stem without pooling."""

from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.models.layers import GlobalMean, conv, initialise, named
from unskew.models.norms import Norm, Normalised, image_norm
from unskew.models.spec import Classifier, Takes
from unskew.utils.specs import OPTIONS

DEPTHS = (6, 12, 24, 16)
GROWTH = 32
BOTTLENECK = 4 * GROWTH


class Dense(nn.Module):
    """A branch that adds ``GROWTH`` channels to its input."""

    def __init__(self, inputs: int, norm: Norm) -> None:
        super().__init__()
        self.branch = named(
            norm1=image_norm(norm, inputs),
            relu1=nn.ReLU(),
            conv1=conv(inputs, BOTTLENECK, 1, norm),
            norm2=image_norm(norm, BOTTLENECK),
            relu2=nn.ReLU(),
            conv2=conv(BOTTLENECK, GROWTH, 3, norm),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the input channels and the new ones."""
        return torch.cat([x, self.branch(x)], 1)


@dataclass(frozen=True, config=OPTIONS)
class DenseNet121(Normalised):
    """Four dense blocks; between them, channels, height and width are halved."""

    summary: ClassVar[str] = "DenseNet-121 for 32x32 images"
    takes: ClassVar[Takes] = "image"

    norm: Norm = "batch"

    def min_image_size(self) -> int:
        """Three transitions halve the image three times."""
        return 1 << (len(DEPTHS) - 1)

    def build(
        self, shape: tuple[int, ...], classes: int, vocabulary: int | None = None
    ) -> Classifier:
        """Build the network."""
        del vocabulary
        width = 2 * GROWTH
        body = named(conv=conv(shape[0], width, 3, self.norm))
        for stage, depth in enumerate(DEPTHS, start=1):
            if stage > 1:
                body.add_module(f"transition{stage - 1}", _transition(width, self.norm))
                width //= 2
            for layer in range(depth):
                body.add_module(f"block{stage}_layer{layer + 1}", Dense(width, self.norm))
                width += GROWTH
        body.add_module("norm", image_norm(self.norm, width))
        body.add_module("relu", nn.ReLU())
        body.add_module("mean", GlobalMean())
        initialise(body, self.norm)
        return Classifier(body, width, classes)


def _transition(inputs: int, norm: Norm) -> nn.Sequential:
    """Halve the channels, height and width.

    Pooling comes before the 1x1 convolution: both are linear maps that commute, and the
    convolution then costs a quarter.
    """
    return named(
        norm=image_norm(norm, inputs),
        relu=nn.ReLU(),
        pool=nn.AvgPool2d(2),
        conv=conv(inputs, inputs // 2, 1, norm),
    )
