"""The coordinates that clients both train and send: those that control variates correct."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.composition.values import Client
from unskew.models.layout import Layout


@dataclass(frozen=True, eq=False)
class SharedCoordinates:
    """The trainable coordinates that are sent; ``mask`` marks them, None means all.

    Statistics are not trained by gradient descent, and coordinates that stay on the client (norm
    layers, a personal head) have no global counterpart to be corrected towards.
    """

    trainable: int
    mask: Tensor | None

    @staticmethod
    def of(client: Client) -> "SharedCoordinates":
        """Return the shared coordinates of a client's network."""
        trainable, mask = client.network.layout.trainable, client.sent_mask
        if mask is not None:
            mask = mask[:trainable]
        return SharedCoordinates(trainable, None if mask is None or bool(mask.all()) else mask)

    @staticmethod
    def trained(layout: Layout) -> "SharedCoordinates":
        """Return the coordinates that are not frozen, also those that stay on clients."""
        frozen, trainable = layout.frozen, layout.trainable
        return SharedCoordinates(trainable, None if frozen is None else ~frozen[:trainable])

    def zeros(self) -> Tensor:
        """Return one zero per shared coordinate."""
        return torch.zeros(self.trainable if self.mask is None else int(self.mask.sum()))

    def take(self, vector: Tensor) -> Tensor:
        """Return a model's values at the shared coordinates."""
        trainable = vector[: self.trainable]
        return trainable if self.mask is None else trainable[self.mask]

    def spread(self, values: Tensor) -> Tensor:
        """Scatter values into all trainable coordinates, with zeros elsewhere."""
        if self.mask is None:
            return values
        vector = values.new_zeros(self.trainable)
        vector[self.mask] = values
        return vector
