"""LeNet-5 (LeCun et al. 1998) in its common modern form, with ReLU and max-pooling.

The original is designed for 32x32 images. Smaller ones are padded by up to 2 pixels per side, so
28x28 digits give the usual 61,706 parameters and CIFAR-10 the usual 62,006.
"""

from typing import ClassVar

from pydantic.dataclasses import dataclass
from torch import nn

from unskew.models.layers import ChannelPaddedConv2d, named
from unskew.models.norms import Norm, Normalised, image_norm
from unskew.models.spec import Classifier, Takes
from unskew.utils.specs import OPTIONS

DESIGN_SIZE = 32
MAX_PADDING = 2


@dataclass(frozen=True, config=OPTIONS)
class LeNet5(Normalised):
    """Two 5x5 convolutions (6 and 16 channels), then layers of 120 and 84."""

    summary: ClassVar[str] = "LeNet-5: two convolutions, for small grey images"
    takes: ClassVar[Takes] = "image"

    norm: Norm = "none"

    def min_image_size(self) -> int:
        """12 pixels and their padding leave one pixel after both convolutions and poolings."""
        return 12

    def build(
        self, shape: tuple[int, ...], classes: int, vocabulary: int | None = None
    ) -> Classifier:
        """Build the network."""
        del vocabulary
        channels, height, width = shape
        padding = min(MAX_PADDING, max(0, (DESIGN_SIZE + 1 - min(height, width)) // 2))
        conv1: nn.Module
        conv2: nn.Module
        if self.norm == "none":
            conv1 = ChannelPaddedConv2d(channels, 6, 5, padding=padding, pads_outputs=True)
            conv2 = ChannelPaddedConv2d(6, 16, 5)
        else:  # a normalisation layer has a fixed number of channels
            conv1 = nn.Conv2d(channels, 6, 5, padding=padding, bias=False)
            conv2 = nn.Conv2d(6, 16, 5, bias=False)
        # ReLU after the pooling is the same function as before it, at a quarter of the cost.
        body = named(
            conv1=conv1,
            norm1=image_norm(self.norm, 6),
            pool1=nn.MaxPool2d(2),
            relu1=nn.ReLU(),
            conv2=conv2,
            norm2=image_norm(self.norm, 16),
            pool2=nn.MaxPool2d(2),
            relu2=nn.ReLU(),
            flatten=nn.Flatten(),
            linear1=nn.Linear(
                16 * _output_size(height, padding) * _output_size(width, padding), 120
            ),
            relu3=nn.ReLU(),
            linear2=nn.Linear(120, 84),
            relu4=nn.ReLU(),
        )
        return Classifier(body, 84, classes)


def _output_size(side: int, padding: int) -> int:
    """Return the height or width after both convolutions and poolings."""
    return ((side + 2 * padding - 4) // 2 - 4) // 2
