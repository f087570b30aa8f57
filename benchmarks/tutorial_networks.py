"""Networks as tutorials write them: plain convolutions, each followed by ReLU, then pooling.

unskew's networks pool before the ReLU, which computes the same function with a quarter of the
ReLU's work, and LeNet-5 has padding channels, which fill the processor's vectors. Peers and the
plain loop are timed with the networks of this module.
"""

from itertools import pairwise
from typing import cast

from torch import nn

from unskew.models import make
from unskew.models.layers import ChannelPaddedConv2d, named


def tutorial_network(model: str, shape: tuple[int, ...]) -> nn.Module:
    """Build a network for ten classes, with each ReLU before its pooling layer."""
    network = make(model, shape, 10)
    layers = dict(cast(nn.Module, network.body).named_children())
    names = list(layers)
    for i, (first, second) in enumerate(pairwise(names)):
        if isinstance(layers[first], nn.MaxPool2d) and isinstance(layers[second], nn.ReLU):
            names[i : i + 2] = second, first
    network.body = named(**{name: layers[name] for name in names})
    return without_padding_channels(network)


def without_padding_channels(network: nn.Module) -> nn.Module:
    """Replace convolutions that have padding channels by plain ones with the same weights."""
    body = cast(nn.Module, network.body)
    for name, layer in list(body.named_children()):
        if isinstance(layer, ChannelPaddedConv2d):
            size, padding = layer.kernel_size[0], int(layer.padding[0])
            plain = nn.Conv2d(layer.in_channels, layer.out_channels, size, padding=padding)
            plain.load_state_dict(layer.state_dict())
            setattr(body, name, plain)
    return network
