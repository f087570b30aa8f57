"""Networks as tutorials have them: plain convolutions, each followed by ReLU, then a pool.

unskew's own networks pool first, which computes the same with a quarter of the ReLU's work, and
LeNet-5 carries spare channels, which fill a processor's vectors. Whoever brings a network to a
peer, or to a plain loop, brings the customary one.
"""

from itertools import pairwise
from typing import cast

from torch import nn

from unskew.models import make
from unskew.models.layers import SpareConv2d, named


def customary(model: str, shape: tuple[int, ...]) -> nn.Module:
    """Build a network for ten classes, every ReLU before the pool that it followed."""
    network = make(model, shape, 10)
    layers = dict(cast(nn.Module, network.body).named_children())
    names = list(layers)
    for i, (first, second) in enumerate(pairwise(names)):
        if isinstance(layers[first], nn.MaxPool2d) and isinstance(layers[second], nn.ReLU):
            names[i : i + 2] = second, first
    network.body = named(**{name: layers[name] for name in names})
    return without_spare(network)


def without_spare(network: nn.Module) -> nn.Module:
    """Put plain convolutions in place of those with spare channels; the weights stay."""
    body = cast(nn.Module, network.body)
    for name, layer in list(body.named_children()):
        if isinstance(layer, SpareConv2d):
            size, padding = layer.kernel_size[0], int(layer.padding[0])
            plain = nn.Conv2d(layer.in_channels, layer.out_channels, size, padding=padding)
            plain.load_state_dict(layer.state_dict())
            setattr(body, name, plain)
    return network
