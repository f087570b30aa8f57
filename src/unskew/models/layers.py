"""Layers and initialisation that the convolutional networks share."""

import torch.nn.functional as F
from torch import Tensor, nn

from unskew.models.norms import Norm


def named(**layers: nn.Module) -> nn.Sequential:
    """Chain layers under their names, so that tensors are called ``conv1.weight``, not ``0``."""
    chain = nn.Sequential()
    for name, layer in layers.items():
        chain.add_module(name, layer)
    return chain


def conv(
    inputs: int, outputs: int, size: int, norm: Norm, *, stride: int = 1, groups: int = 1
) -> nn.Conv2d:
    """Return a convolution that keeps the image's size (divided by the stride).

    It has a bias only where no normalisation follows, since that would remove the bias.
    """
    return nn.Conv2d(
        inputs,
        outputs,
        size,
        stride=stride,
        padding=size // 2,
        groups=groups,
        bias=norm == "none",
    )


class ChannelPaddedConv2d(nn.Conv2d):
    """A convolution with its channels padded with zeros to a multiple of eight.

    Processors compute on eight numbers at a time, so six channels cost more than eight
    (benchmarks/padding_channels.py). The padding channels stay zero in ReLU and pooling, and have
    zero weight in the next convolution, so function and parameters are unchanged.
    """

    LANES = 8

    def __init__(
        self, inputs: int, outputs: int, size: int, *, padding: int = 0, pads_outputs: bool = False
    ) -> None:
        super().__init__(inputs, outputs, size, padding=padding)
        self.pads_outputs = pads_outputs

    def forward(self, x: Tensor) -> Tensor:
        """Apply the convolution to inputs with padding channels; pad its outputs if requested."""
        inputs = x.shape[-3] - self.weight.shape[1]
        outputs = -self.weight.shape[0] % self.LANES if self.pads_outputs else 0
        weight = F.pad(self.weight, (0, 0, 0, 0, 0, inputs, 0, outputs))
        bias = None if self.bias is None else F.pad(self.bias, (0, outputs))
        result: Tensor = self._conv_forward(x, weight, bias)
        return result


class Residual(nn.Module):
    """A branch added to a shortcut."""

    def __init__(self, branch: nn.Sequential, shortcut: nn.Module) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of branch and shortcut."""
        total: Tensor = self.branch(x) + self.shortcut(x)
        return total


class GlobalMean(nn.Module):
    """The mean of each channel over the whole image."""

    def forward(self, x: Tensor) -> Tensor:
        """Turn N x C x H x W into N x C."""
        return x.mean((2, 3))


def initialise(body: nn.Module, norm: Norm) -> None:
    """Initialise a deep network's convolutions so that activations keep their scale (He 2015).

    Without normalisation every residual block adds its branch's variance to the activations, so
    branches start smaller by the square root of the number of blocks.
    """
    for layer in body.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    if norm == "none":
        blocks = [layer for layer in body.modules() if isinstance(layer, Residual)]
        for block in blocks:
            last = [layer for layer in block.branch if isinstance(layer, nn.Conv2d)][-1]
            last.weight.data /= len(blocks) ** 0.5
