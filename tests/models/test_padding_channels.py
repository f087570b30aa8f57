"""Padding channels change the speed of a network, not its output."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from unskew.models import make
from unskew.models.layers import ChannelPaddedConv2d


def plain_copy(network):
    """The same network with plain convolutions and the same parameters."""
    body = network.body
    for name, layer in list(body.named_children()):
        if isinstance(layer, ChannelPaddedConv2d):
            plain = nn.Conv2d(
                layer.in_channels, layer.out_channels, layer.kernel_size, padding=layer.padding
            )
            plain.load_state_dict(layer.state_dict())
            setattr(body, name, plain)
    return network


def both(shape):
    padded, plain = make("lenet5", shape, 10, seed=1), plain_copy(make("lenet5", shape, 10, seed=1))
    assert [type(plain.body.conv1), type(padded.body.conv1)] == [nn.Conv2d, ChannelPaddedConv2d]
    return padded, plain


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 12, 12)])
def test_lenet_with_padding_channels_equals_lenet(shape):
    x, y = torch.rand(6, *shape), torch.arange(6)
    losses, gradients = [], []
    for network in both(shape):
        loss = nn.functional.cross_entropy(network(x), y)
        losses.append(loss.item())
        gradients.append(torch.autograd.grad(loss, list(network.parameters())))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    for padded, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(padded, plain, rtol=1e-4, atol=1e-6)


def test_padding_channels_are_zero_and_only_between_the_convolutions():
    network = make("lenet5", (1, 28, 28), 10)
    first = network.body.conv1(torch.rand(2, 1, 28, 28))
    assert first.shape[1] == 8
    assert not first[:, 6:].any()
    assert network.body.conv2(first).shape[1] == 16


def test_a_layer_called_with_more_channels_adds_the_padding_channels_it_needs():
    network = make("lenet5", (1, 28, 28), 10).body
    wider = {"weight": torch.rand(11, 1, 5, 5), "bias": torch.rand(11)}
    first = functional_call(network.conv1, wider, torch.rand(2, 1, 28, 28))
    assert first.shape[1] == 16
    second = {"weight": torch.rand(17, 11, 5, 5), "bias": torch.rand(17)}
    assert functional_call(network.conv2, second, first).shape[1] == 17
