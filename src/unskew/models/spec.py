"""The base of the package's networks: a classifier is a body that makes features and a linear head.

Methods that treat body and head differently (FedBABU, FedRep, MOON, FedROD) rely on this split.
Densities and autoencoders are separate modules.
"""

from typing import ClassVar, Literal

from torch import Tensor, nn

Takes = Literal["image", "any", "text"]
Aim = Literal["classes", "density", "reconstruction"]


class Classifier(nn.Module):
    """A body and a head: ``forward(x) == head(features(x))``."""

    def __init__(self, body: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(width, classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: one row of features per sample."""
        features: Tensor = self.body(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Return one logit per class."""
        logits: Tensor = self.head(self.features(x))
        return logits


class ModelSpec:
    """The options of a type of network. Subclasses are frozen dataclasses.

    ``takes`` is the kind of samples: images, any numbers (which are flattened), or text. ``aim``
    is what the network is trained for.
    """

    summary: ClassVar[str]
    takes: ClassVar[Takes]
    aim: ClassVar[Aim] = "classes"

    def min_image_size(self) -> int:
        """Return the smallest height and width of an image that the network can take."""
        return 1

    def build(
        self, shape: tuple[int, ...], classes: int, vocabulary: int | None = None
    ) -> nn.Module:
        """Build the network for samples of one shape; ``vocabulary`` is the number of tokens."""
        raise NotImplementedError
