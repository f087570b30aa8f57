"""What every classifier of this package is: a body that makes features, and a linear head.

Methods that treat body and head apart (FedBABU, FedRep, MOON, FedROD) rely on this split. Densities
and autoencoders are modules of their own kind.
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
        """Return what the head sees: one row of numbers a sample."""
        features: Tensor = self.body(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Return one logit a class."""
        logits: Tensor = self.head(self.features(x))
        return logits


class ModelSpec:
    """The options of a kind of network. Subclasses are frozen dataclasses.

    ``takes`` says which samples it is for: images, any numbers (they are flattened), or text;
    ``aim`` what it is trained for.
    """

    summary: ClassVar[str]
    takes: ClassVar[Takes]
    aim: ClassVar[Aim] = "classes"

    def smallest(self) -> int:
        """Return the least height and width of an image this network can take."""
        return 1

    def build(
        self, shape: tuple[int, ...], classes: int, vocabulary: int | None = None
    ) -> nn.Module:
        """Build the network for samples of one shape; ``vocabulary`` is the number of tokens."""
        raise NotImplementedError
