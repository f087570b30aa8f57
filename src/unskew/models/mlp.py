"""Networks for flattened samples: logistic regression and the multi-layer perceptron."""

from math import prod
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator
from pydantic.dataclasses import dataclass
from torch import nn

from unskew.models.norms import Norm, Normalised, vector_norm
from unskew.models.spec import Classifier, ModelSpec, Takes
from unskew.utils.specs import OPTIONS


def _widths(text: str) -> str:
    if not all(part.isdecimal() and int(part) > 0 for part in text.split("-")):
        raise ValueError("must be the widths of the hidden layers, such as 200 or 64-32")
    return text


Widths = Annotated[str, BeforeValidator(str), AfterValidator(_widths)]


@dataclass(frozen=True, config=OPTIONS)
class Logistic(ModelSpec):
    """Multinomial logistic regression: one linear layer on the flattened sample."""

    summary: ClassVar[str] = "logistic regression: one linear layer"
    takes: ClassVar[Takes] = "any"

    def build(
        self, shape: tuple[int, ...], classes: int, vocabulary: int | None = None
    ) -> Classifier:
        """Build the network."""
        del vocabulary
        return Classifier(nn.Flatten(), prod(shape), classes)


@dataclass(frozen=True, config=OPTIONS)
class Linear(Logistic):
    """One linear layer: linear regression of a number, logistic regression of classes."""

    summary: ClassVar[str] = "linear regression, or logistic for classes: one linear layer"


@dataclass(frozen=True, config=OPTIONS)
class MLP(Normalised):
    """Linear layers with ReLU between."""

    summary: ClassVar[str] = "multi-layer perceptron"
    takes: ClassVar[Takes] = "any"

    hidden: Widths = "200"
    """Widths of the layers, such as 64-32."""
    norm: Norm = "none"

    def build(
        self, shape: tuple[int, ...], classes: int, vocabulary: int | None = None
    ) -> Classifier:
        """Build the network."""
        del vocabulary
        body, inputs = nn.Sequential(nn.Flatten()), prod(shape)
        for width in map(int, self.hidden.split("-")):
            # A normalisation layer has a shift of its own, so a bias would be redundant.
            body.append(nn.Linear(inputs, width, bias=self.norm == "none"))
            body.extend([vector_norm(self.norm, width), nn.ReLU()])
            inputs = width
        return Classifier(body, inputs, classes)
