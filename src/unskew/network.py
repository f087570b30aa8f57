"""A network as a pure function of flat parameters, buffers and a batch.

Methods write their local objective against this, and the same text then serves the plain loop,
``torch.vmap`` over a whole cohort, and Flower.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from unskew.layout import Layout

Buffers = dict[str, Tensor]

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)


@dataclass(frozen=True)
class Batch:
    """Samples of one step. ``scale`` is each sample's factor in the loss.

    It is the sample's weight (1 without weights) divided by the number of samples in the batch,
    and 0 for padding, so that summing ``scale * losses`` is the mean a client alone would take.
    """

    x: Tensor
    y: Tensor
    scale: Tensor


class Network:
    """A module taken apart into a function and the layout of its flat vector."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.layout = Layout.of(module)
        self._sizes = [entry.size for entry in self.layout.parameters]
        self._names = [(entry.name, entry.shape) for entry in self.layout.parameters]
        kinds = [type(part) for part in module.modules()]
        self.convolutional = any(issubclass(kind, _CONVOLUTIONS) for kind in kinds)
        self.couples_samples = any(
            issubclass(kind, nn.modules.batchnorm._BatchNorm) for kind in kinds
        )
        """Whether a sample's output in training depends on the others of its batch."""

    def __call__(self, weights: Tensor, buffers: Buffers, x: Tensor) -> Tensor:
        """Return the module's output with these flat trainable parameters and these buffers."""
        pieces = torch.split(weights, self._sizes)
        tensors = {
            name: piece.view(shape)
            for (name, shape), piece in zip(self._names, pieces, strict=True)
        }
        output: Tensor = functional_call(self.module, (tensors, buffers), (x,))
        return output

    def losses(self, weights: Tensor, buffers: Buffers, batch: Batch) -> Tensor:
        """Return each sample's cross-entropy."""
        return F.cross_entropy(self(weights, buffers, batch.x), batch.y, reduction="none")

    def buffers_of(self, rest: Tensor) -> Buffers:
        """Name the buffers in the part of a vector behind the trainable coordinates, as views.

        ``rest`` may have a leading dimension of clients. Networks that update their running
        statistics in training do so in place, and so in ``rest``.
        """
        first, lead = self.layout.trainable, rest.shape[:-1]
        return {
            entry.name: rest[..., entry.start - first : entry.stop - first].view(
                (*lead, *entry.shape)
            )
            for entry in self.layout.buffers
        }

    def inputs(self, x: Tensor) -> Tensor:
        """Turn stored features into what the module takes: bytes become numbers from 0 to 1."""
        if x.dtype == torch.uint8:
            x = x.to(torch.float32).mul_(1 / 255)
        elif x.dtype == torch.int32:
            x = x.to(torch.int64)
        if self.convolutional and x.ndim == 4:
            # Convolutions on the CPU take half the time in this order of memory. `contiguous`
            # would leave one-channel images as they are, so the copy is spelled out.
            x = torch.empty_like(x, memory_format=torch.channels_last).copy_(x)
        return x
