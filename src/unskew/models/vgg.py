"""VGG-11 (Simonyan and Zisserman 2015) for small images: eight convolutions, one linear layer.

The three wide linear layers of the original are designed for 7x7 maps; 32x32 images leave a single
pixel, so only the head follows, as is usual for CIFAR.
"""

from typing import ClassVar

from pydantic.dataclasses import dataclass
from torch import nn

from unskew.models.layers import GlobalMean, conv, initialise
from unskew.models.norms import Norm, Normalised, image_norm
from unskew.models.spec import Classifier, Takes
from unskew.utils.specs import OPTIONS

# Widths of the convolutions per block; each block ends with pooling.
BLOCKS = ((64,), (128,), (256, 256), (512, 512), (512, 512))


@dataclass(frozen=True, config=OPTIONS)
class VGG11(Normalised):
    """Eight 3x3 convolutions in five blocks; no normalisation and no dropout by default."""

    summary: ClassVar[str] = "VGG-11: eight convolutions, no normalisation"
    takes: ClassVar[Takes] = "image"

    norm: Norm = "none"

    def min_image_size(self) -> int:
        """Five poolings halve the image five times."""
        return 1 << len(BLOCKS)

    def build(
        self, shape: tuple[int, ...], classes: int, vocabulary: int | None = None
    ) -> Classifier:
        """Build the network."""
        del vocabulary
        body, inputs = nn.Sequential(), shape[0]
        for block in BLOCKS:
            for width in block:
                body.extend([conv(inputs, width, 3, self.norm), image_norm(self.norm, width)])
                body.append(nn.ReLU())
                inputs = width
            # ReLU after the pooling is the same function as before it, at a quarter of the cost.
            body.insert(len(body) - 1, nn.MaxPool2d(2))
        body.append(GlobalMean())
        initialise(body, self.norm)
        return Classifier(body, inputs, classes)
