"""A body with two heads: one that all clients share, and a personal one.

The logits of both heads are added, and a personal head of zeros adds nothing. So a vector is the
generic model if its personal coordinates are zero, and a client's model if they are the client's.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unskew.models.spec import Classifier


class TwoHeads(nn.Module):
    """``forward(x) == head(body(x)) + personal(body(x))``."""

    def __init__(self, parts: Classifier, personal: nn.Module) -> None:
        super().__init__()
        self.body, self.head, self.personal = parts.body, parts.head, personal

    def forward(self, x: Tensor) -> Tensor:
        """Return one logit per class."""
        features = self.body(x)
        logits: Tensor = self.head(features) + self.personal(features)
        return logits


def zero_head(width: int, classes: int) -> nn.Linear:
    """Return a linear head that starts at zero."""
    head = nn.Linear(width, classes)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


class HyperHead(nn.Module):
    """A linear head that a shared hypernetwork computes from the client's class proportions.

    Without proportions (all zero, as on the server) it is zero; it also starts at zero.
    """

    proportions: Tensor

    def __init__(self, width: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.width, self.classes = width, classes
        self.hyper = nn.Sequential(
            nn.Linear(classes, hidden), nn.ReLU(), zero_head(hidden, classes * (width + 1))
        )
        self.register_buffer("proportions", torch.zeros(classes))

    def forward(self, features: Tensor) -> Tensor:
        """Apply the head that belongs to the proportions."""
        parameters = self.hyper(self.proportions) * self.proportions.sum()
        weight, bias = parameters.split([self.classes * self.width, self.classes])
        return F.linear(features, weight.view(self.classes, self.width), bias)
