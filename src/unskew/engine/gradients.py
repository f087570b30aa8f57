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
from unskew.composition.values import Tensors
from unskew.models.functional import Batch, Buffers, FunctionalModel


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
    train_mask: Tensor | None = None
    """Zeros for the coordinates that may not change; None means none."""

    def __call__(self, weights: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the clients' losses and gradients, and the references that change."""
        rows = len(self.buffers) + len(self.per_client)
        batch = len(tensors) - rows - len(self.shared)
        in_dims = (0, *[0] * rows, *[None] * len(self.shared), *[0] * batch)
        with torch.enable_grad():
            leaf = weights.detach().requires_grad_()
            if self.method.reads_gradient:
                slopes = self._slopes(leaf, tensors, in_dims)
                # A batch enters running statistics once, at the weights themselves.
                copies = [each.clone() for each in tensors[: len(self.buffers)]]
                tensors = (*copies, *tensors[len(copies) :], slopes)
                in_dims = (*in_dims, 0)
            losses, *changed = vmap(self._objective, in_dims)(leaf, *tensors)
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        return losses.detach(), gradient, *changed

    def _slopes(
        self, leaf: Tensor, tensors: Sequence[Tensor], in_dims: tuple[int | None, ...]
    ) -> Tensor:
        """Return the gradients of the samples' losses at the weights."""

        def loss(weights: Tensor, *tensors: Tensor) -> Tensor:
            return self.method.samples_loss(self.network, weights, *self._named(tensors))

        (slopes,) = torch.autograd.grad(vmap(loss, in_dims)(leaf, *tensors).sum(), leaf)
        return slopes if self.train_mask is None else slopes * self.train_mask

    def _objective(self, weights: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        slope = None
        if self.method.reads_gradient:
            tensors, slope = tensors[:-1], tensors[-1]
        named = self._named(tensors)
        return self.method.step_objective(self.network, weights, *named, gradient=slope)

    def _named(self, tensors: Sequence[Tensor]) -> tuple[Buffers, Batch, Tensors]:
        """Return the buffers, the batch and the references."""
        buffers = dict(zip(self.buffers, tensors, strict=False))
        names, rest = (*self.per_client, *self.shared), tensors[len(buffers) :]
        refs = dict(zip(names, rest, strict=False))
        return buffers, Batch(*rest[len(names) :]), refs
