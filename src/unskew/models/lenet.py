"""LeNet-5 (LeCun et al. 1998), as it is used today: ReLU and max-pooling.

The original is drawn for 32x32 images; smaller ones are padded towards that by up to 2 pixels a
side, so 28x28 digits give the known 61,706 parameters and CIFAR-10 the known 62,006.
"""

from typing import ClassVar

from pydantic.dataclasses import dataclass
from torch import nn

from unskew.models.layers import SpareConv2d, named
from unskew.models.norms import Norm, Normalised, image_norm
from unskew.models.spec import Classifier, Takes
from unskew.utils.specs import OPTIONS

DRAWN_FOR = 32
MOST_PADDING = 2


@dataclass(frozen=True, config=OPTIONS)
class LeNet5(Normalised):
    """Two 5x5 convolutions (6 and 16 channels), then layers of 120 and 84."""

    summary: ClassVar[str] = "LeNet-5: two convolutions, for small grey images"
    takes: ClassVar[Takes] = "image"

    norm: Norm = "none"

    def smallest(self) -> int:
        """12 pixels, with their padding, leave one pixel after both convolutions and pools."""
        return 12

    def build(
        self, shape: tuple[int, ...], classes: int, vocabulary: int | None = None
    ) -> Classifier:
        """Build the network."""
        del vocabulary
        channels, height, width = shape
        padding = min(MOST_PADDING, max(0, (DRAWN_FOR + 1 - min(height, width)) // 2))
        conv1: nn.Module
        conv2: nn.Module
        if self.norm == "none":
            conv1 = SpareConv2d(channels, 6, 5, padding=padding, adds_spare=True)
            conv2 = SpareConv2d(6, 16, 5)
        else:  # a norm has as many channels as it was made for
            conv1 = nn.Conv2d(channels, 6, 5, padding=padding, bias=False)
            conv2 = nn.Conv2d(6, 16, 5, bias=False)
        # ReLU after the pool is the same function as before it, for a quarter of the work.
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
            linear1=nn.Linear(16 * _left(height, padding) * _left(width, padding), 120),
            relu3=nn.ReLU(),
            linear2=nn.Linear(120, 84),
            relu4=nn.ReLU(),
        )
        return Classifier(body, 84, classes)


def _left(side: int, padding: int) -> int:
    """Return what both convolutions and pools leave of one side."""
    return ((side + 2 * padding - 4) // 2 - 4) // 2
