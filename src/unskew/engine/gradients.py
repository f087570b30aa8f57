"""The losses and gradients of a cohort, in one batched computation.

``torch.vmap`` runs the method's objective over the rows of a matrix. Since no client's loss
depends on another client's row, the gradient of their sum contains each client's gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from unskew.composition.method import Method
from unskew.models.functional import Batch, FunctionalModel


@dataclass(frozen=True)
class Gradients:
    """A pure function of tensors in this order: weights, buffers, references, batch.

    Weights, buffers, per-client references and the batch have one row per client; shared
    references have none. vmap is twice as fast with plain tensors as with dictionaries of them.
    """

    method: Method
    network: FunctionalModel
    buffers: Sequence[str]
    per_client: Sequence[str]
    """The names of the references that differ between clients."""
    shared: Sequence[str]
    """The names of the references that all clients share."""

    def __call__(self, weights: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the clients' losses and gradients."""
        rows = len(self.buffers) + len(self.per_client)
        batch = len(tensors) - rows - len(self.shared)
        in_dims = (0, *[0] * rows, *[None] * len(self.shared), *[0] * batch)
        with torch.enable_grad():
            leaf = weights.detach().requires_grad_()
            losses = vmap(self._loss, in_dims)(leaf, *tensors)
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        return losses.detach(), gradient

    def _loss(self, weights: Tensor, *tensors: Tensor) -> Tensor:
        buffers = dict(zip(self.buffers, tensors, strict=False))
        names, rest = (*self.per_client, *self.shared), tensors[len(buffers) :]
        refs = dict(zip(names, rest, strict=False))
        batch = Batch(*rest[len(names) :])
        return self.method.objective(self.network, weights, buffers, batch, refs)
