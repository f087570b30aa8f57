"""The task network of FedDisk: two 5x5 convolutions of equal width and one layer of 16 units.

The paper lists a block's parts in order (convolution, 2x2 max-pooling, BatchNorm) and does not
say where the non-linearity is. Here it is convolution, pooling, ReLU, BatchNorm: ReLU after the
pooling is the same function as before it (both are monotone) at a quarter of the cost, and
BatchNorm ends the block as in the paper. With valid (unpadded) convolutions the parameter counts
are those of the paper's Table II.
"""

from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import nn

from unskew.models.layers import named
from unskew.models.norms import Norm, Normalised, image_norm
from unskew.models.spec import Classifier, Takes
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS)
class FedDiskCNN(Normalised):
    """Two convolutions of equal width, then one hidden linear layer."""

    summary: ClassVar[str] = "FedDisk's network: two convolutions with BatchNorm"
    takes: ClassVar[Takes] = "image"

    channels: Annotated[int, Field(ge=1)] = 16
    """Channels of each convolution; the paper uses 16 for MNIST, 32 for X-rays, 128 for FEMNIST."""
    hidden: Annotated[int, Field(ge=1)] = 16
    """Width of the layer after the convolutions."""
    padding: Annotated[int, Field(ge=0, le=2)] = 0
    """Padding of each convolution, in pixels per side; 2 keeps the size of the image."""
    norm: Norm = "batch"

    def min_image_size(self) -> int:
        """Each pixel of padding saves 2 pixels at the first convolution and 4 at the second."""
        return 16 - 6 * self.padding

    def build(
        self, shape: tuple[int, ...], classes: int, vocabulary: int | None = None
    ) -> Classifier:
        """Build the network."""
        del vocabulary
        inputs, height, width = shape
        pixels = self._output_size(self._output_size(height)) * self._output_size(
            self._output_size(width)
        )
        body = named(
            conv1=nn.Conv2d(inputs, self.channels, 5, padding=self.padding),
            pool1=nn.MaxPool2d(2),
            relu1=nn.ReLU(),
            norm1=image_norm(self.norm, self.channels),
            conv2=nn.Conv2d(self.channels, self.channels, 5, padding=self.padding),
            pool2=nn.MaxPool2d(2),
            relu2=nn.ReLU(),
            norm2=image_norm(self.norm, self.channels),
            flatten=nn.Flatten(),
            linear=nn.Linear(self.channels * pixels, self.hidden),
            relu3=nn.ReLU(),
        )
        return Classifier(body, self.hidden, classes)

    def _output_size(self, side: int) -> int:
        """Return the height or width after one convolution and one pooling."""
        return (side + 2 * self.padding - 4) // 2
