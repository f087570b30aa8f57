"""The coordinates that clients both train and share: where control variates live."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.methods.common.base import Method
from unskew.models.layout import Layout


@dataclass(frozen=True, eq=False)
class Shared:
    """The trainable coordinates that travel; ``mask`` marks them, None means all.

    Statistics are not descended, and what a client keeps to itself (its own norm layers, its own
    head) has no counterpart to be corrected towards.
    """

    trainable: int
    mask: Tensor | None

    @staticmethod
    def of(method: Method, layout: Layout) -> "Shared":
        """Find them for a method and a network."""
        mask = method.travels(layout)
        if mask is not None:
            mask = mask[: layout.trainable]
        return Shared(layout.trainable, None if mask is None or bool(mask.all()) else mask)

    def zeros(self) -> Tensor:
        """Return a zero for each."""
        return torch.zeros(self.trainable if self.mask is None else int(self.mask.sum()))

    def take(self, vector: Tensor) -> Tensor:
        """Return a model's numbers there."""
        trainable = vector[: self.trainable]
        return trainable if self.mask is None else trainable[self.mask]

    def spread(self, values: Tensor) -> Tensor:
        """Put numbers in their places among all trainable coordinates, zeros in the others."""
        if self.mask is None:
            return values
        vector = values.new_zeros(self.trainable)
        vector[self.mask] = values
        return vector
