"""The losses of a cohort and their gradients, in one batched computation.

``torch.vmap`` runs the method's objective over the rows of a matrix; since no client's loss
depends on another's row, the gradient of their sum holds each client's own gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from unskew.methods.common.base import Method
from unskew.models.functional import Batch, FunctionalModel


@dataclass(frozen=True)
class Gradients:
    """A pure function of tensors, in this order: weights, the named ones, and those of a batch.

    Weights, buffers, own references and batch have a row a client; shared references have none.
    vmap takes plain tensors in half the time that it takes dictionaries of them.
    """

    method: Method
    network: FunctionalModel
    buffers: Sequence[str]
    own: Sequence[str]
    shared: Sequence[str]

    def __call__(self, weights: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the clients' losses and gradients."""
        rows = len(self.buffers) + len(self.own)
        batch = len(tensors) - rows - len(self.shared)
        in_dims = (0, *[0] * rows, *[None] * len(self.shared), *[0] * batch)
        with torch.enable_grad():
            leaf = weights.detach().requires_grad_()
            losses = vmap(self._loss, in_dims)(leaf, *tensors)
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        return losses.detach(), gradient

    def _loss(self, weights: Tensor, *tensors: Tensor) -> Tensor:
        buffers = dict(zip(self.buffers, tensors, strict=False))
        names, rest = (*self.own, *self.shared), tensors[len(buffers) :]
        refs = dict(zip(names, rest, strict=False))
        batch = Batch(*rest[len(names) :])
        return self.method.objective(self.network, weights, buffers, batch, refs)
