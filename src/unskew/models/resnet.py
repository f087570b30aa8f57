"""Residual networks (He et al. 2016) for small images: a 3x3 stem without pooling."""

from typing import ClassVar

from pydantic.dataclasses import dataclass
from torch import nn

from unskew.models.layers import GlobalMean, Residual, conv, initialise, named
from unskew.models.norms import Norm, Normalised, image_norm
from unskew.models.spec import Classifier, Takes
from unskew.utils.specs import OPTIONS

WIDTHS = (64, 128, 256, 512)


class _ResNet(Normalised):
    """Four stages of basic blocks; each but the first halves the image and doubles the width."""

    takes: ClassVar[Takes] = "image"
    depths: ClassVar[tuple[int, ...]]

    def build(
        self, shape: tuple[int, ...], classes: int, vocabulary: int | None = None
    ) -> Classifier:
        """Build the network."""
        del vocabulary
        width = WIDTHS[0]
        body = named(
            conv=conv(shape[0], width, 3, self.norm),
            norm=image_norm(self.norm, width),
            relu=nn.ReLU(),
        )
        for stage, (outputs, depth) in enumerate(zip(WIDTHS, self.depths, strict=True), start=1):
            for block in range(depth):
                stride = 2 if stage > 1 and block == 0 else 1
                name = f"stage{stage}_block{block + 1}"
                body.add_module(name, _block(width, outputs, stride, self.norm))
                width = outputs
        body.add_module("mean", GlobalMean())
        initialise(body, self.norm)
        return Classifier(body, width, classes)


@dataclass(frozen=True, config=OPTIONS)
class ResNet18(_ResNet):
    """ResNet-18: 11,173,962 parameters for colour images and ten classes."""

    summary: ClassVar[str] = "ResNet-18 for 32x32 images"
    depths: ClassVar[tuple[int, ...]] = (2, 2, 2, 2)

    norm: Norm = "batch"


@dataclass(frozen=True, config=OPTIONS)
class ResNet34(_ResNet):
    """ResNet-34: 21,282,122 parameters for colour images and ten classes."""

    summary: ClassVar[str] = "ResNet-34 for 32x32 images"
    depths: ClassVar[tuple[int, ...]] = (3, 4, 6, 3)

    norm: Norm = "batch"


def _block(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Sequential:
    """Return two 3x3 convolutions with a shortcut, which is a 1x1 convolution if shapes differ."""
    branch = named(
        conv1=conv(inputs, outputs, 3, norm, stride=stride),
        norm1=image_norm(norm, outputs),
        relu=nn.ReLU(),
        conv2=conv(outputs, outputs, 3, norm),
        norm2=image_norm(norm, outputs),
    )
    shortcut: nn.Module = nn.Identity()
    if stride != 1 or inputs != outputs:
        shortcut = named(
            conv=conv(inputs, outputs, 1, norm, stride=stride), norm=image_norm(norm, outputs)
        )
    return named(sum=Residual(branch, shortcut), relu=nn.ReLU())
