"""Networks in the order of layers that tutorials have: convolution, ReLU, pool.

unskew's own networks pool first, which computes the same with a quarter of the ReLU's work. Whoever
brings a network to a peer, or to a plain loop, brings the customary order.
"""

from itertools import pairwise
from typing import cast

from torch import nn

from unskew.models import make
from unskew.models.layers import named


def customary(model: str, shape: tuple[int, ...]) -> nn.Module:
    """Build a network for ten classes with every ReLU before the pool that it followed."""
    network = make(model, shape, 10)
    layers = dict(cast(nn.Module, network.body).named_children())
    names = list(layers)
    for i, (first, second) in enumerate(pairwise(names)):
        if isinstance(layers[first], nn.MaxPool2d) and isinstance(layers[second], nn.ReLU):
            names[i : i + 2] = second, first
    network.body = named(**{name: layers[name] for name in names})
    return network
