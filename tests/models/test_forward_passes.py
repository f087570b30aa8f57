"""Capturing forward passes, running another model, and running a part of a network."""

import pytest
import torch
from torch import nn

from unskew.errors import UnskewError
from unskew.models import make
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten
from unskew.models.split import split

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))


class LateSoftmax(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 3)

    def forward(self, x):
        return self.linear(x).log_softmax(-1)


def parts_of(module):
    network = FunctionalModel(module)
    vector = flatten(module, network.layout)
    trainable = network.layout.trainable
    return network, vector, vector[:trainable], network.copy_buffers(vector[trainable:])


def test_a_captured_pass_has_features_and_output():
    network, _, weights, buffers = parts_of(make("mlp:hidden=4", (5,), 3))
    with network.capture_passes() as passes:
        output = network(weights, buffers, X)
        network(2 * weights, buffers, X)
    assert len(passes) == 2
    assert passes[0].output is output
    torch.testing.assert_close(network.part("head", weights, buffers, passes[0].features), output)
    network(weights, buffers, X)
    assert len(passes) == 2


def test_without_a_linear_layer_there_are_no_features():
    network, _, weights, buffers = parts_of(nn.Sequential(nn.Conv1d(1, 1, 1), nn.Flatten()))
    with network.capture_passes() as passes:
        network(weights, buffers, X.unsqueeze(1))
    assert passes[0].features is None


def test_a_part_uses_its_weights_and_buffers():
    network, _, weights, buffers = parts_of(make("mlp:hidden=4,norm=batch", (5,), 3))
    network.module.train()
    network.part("body", weights, buffers, X)
    assert [int(b) for name, b in buffers.items() if name.endswith("tracked")] == [1]


def test_an_evaluation_pass_changes_nothing_and_uses_the_statistics_of_its_vector():
    module = make("mlp:hidden=4,norm=batch", (5,), 3)
    network, vector, weights, buffers = parts_of(module)
    network.module.train()
    for _ in range(3):
        network(weights, buffers, X + 2)
    other = vector.clone()
    network.write_buffers(buffers, other[network.layout.trainable :])
    before = other.clone()
    output = network.forward_eval(other, X).output
    assert torch.equal(other, before)
    assert module.training
    module.load_state_dict(network.layout.tensors(other), strict=True)
    torch.testing.assert_close(output, module.eval()(X))
    assert not output.requires_grad


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(5, 3),
        nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3, bias=False)),
        nn.Sequential(nn.Sequential(nn.Linear(5, 4), nn.Tanh()), nn.Sequential(nn.Linear(4, 3))),
        make("mlp:hidden=4", (5,), 3),
    ],
)
def test_a_split_network_computes_the_same(module):
    parts = split(module, X, "method")
    assert torch.equal(parts(X), module(X))
    assert parts.head.out_features == 3
    assert torch.equal(parts.head(parts.features(X)), module(X))


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (nn.Sequential(nn.Conv1d(1, 1, 1), nn.Flatten()), "it has none"),
        (LateSoftmax(), "its output is not that of 'linear'"),
        (nn.Sequential(nn.Linear(5, 3), nn.LayerNorm(3)), "its output is not that of '0'"),
    ],
)
def test_a_network_that_does_not_end_in_a_head_is_rejected(module, why):
    with pytest.raises(UnskewError, match=f"model: method needs .* and {why}"):
        split(module, X, "method")
