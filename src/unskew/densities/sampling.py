"""Draw samples from a MADE, and compute the log-likelihood of samples under it.

Features are drawn in the order of their degrees. A hidden unit of degree d depends on features up
to that degree, so it is computed once, as soon as the last of them is drawn, and every connection
is used once: a sample costs the arithmetic of one forward pass, for any number of layers.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from unskew.errors import UnskewError
from unskew.models.bernoulli import bernoulli_losses
from unskew.models.functional import FunctionalModel
from unskew.models.made import MADE
from unskew.models.unit_interval import check_unit_interval

_CHUNK = 4096
"""Samples that are drawn at once; their activations should fit into the processor's cache."""


def draw(network: FunctionalModel, weights: Tensor, count: int, generator: Generator) -> Tensor:
    """Return flattened samples as rows of zeros and ones, in the type of the weights.

    They are not bytes, since bytes would be treated as grey levels and divided by 255.
    """
    features = len(_made(network).degrees[0])
    sizes = [min(_CHUNK, count - start) for start in range(0, count, _CHUNK)]
    pieces = [
        draw_from_uniforms(
            network, weights, torch.rand(size, features, generator=generator).to(weights)
        )
        for size in sizes
    ]
    return torch.cat(pieces) if pieces else weights.new_empty(0, features)


@torch.no_grad()
def draw_from_uniforms(network: FunctionalModel, weights: Tensor, uniforms: Tensor) -> Tensor:
    """Return samples drawn with uniform numbers in [0, 1), one per sample and feature.

    A feature is 1 where its uniform number is below its probability.
    """
    degrees = _made(network).degrees
    ranks = torch.from_numpy(degrees[0] - 1)
    *layers, output = _sorted_layers(network, weights)
    rows = uniforms.new_empty(uniforms.shape[::-1])
    rows[ranks] = uniforms.T
    # Per layer, one row per unit in the order of degrees; only the rows computed so far are valid.
    activations = [torch.empty_like(rows)]
    activations += [rows.new_empty(len(layer.bias), rows.shape[1]) for layer in layers]
    for feature, uniform in enumerate(rows):
        inputs = output.inputs[feature]
        logit = output.weight[feature, :inputs] @ activations[-1][:inputs] + output.bias[feature]
        activations[0][feature] = uniform < torch.sigmoid(logit)
        for layer, before, after in zip(layers, activations, activations[1:], strict=False):
            units = slice(layer.computed[feature], layer.computed[feature + 1])
            if units.start < units.stop:
                inputs = layer.inputs[feature]
                preactivation = (
                    layer.weight[units, :inputs] @ before[:inputs] + layer.bias[units, None]
                )
                after[units] = preactivation.relu_()
    return activations[0][ranks].T.contiguous()


@torch.no_grad()
def log_density(network: FunctionalModel, weights: Tensor, x: Tensor) -> Tensor:
    """Return each sample's log-likelihood in nats, in double precision.

    For binary samples it is the logarithm of their probability. A grey level counts as the share
    of ones among many binary samples, and the result is their mean log-likelihood.
    """
    _made(network)
    check_unit_interval(x, "x")
    inputs = network.inputs(x)
    logits = network(weights, {}, inputs).double()
    return -bernoulli_losses(logits, inputs.flatten(1).double())


@dataclass(frozen=True, eq=False)
class _Layer:
    """A layer with rows and columns in the order of degrees, so that masks become ranges."""

    weight: Tensor
    bias: Tensor
    computed: list[int]
    """By number of features drawn, how many units of this layer can be computed."""
    inputs: list[int]
    """By feature, how many units of the layer below are connected to the units computed then."""


def _sorted_layers(network: FunctionalModel, weights: Tensor) -> list[_Layer]:
    """Sort the units of all layers by degree; the last layer has one row per feature."""
    degrees = _made(network).degrees
    steps = np.arange(len(degrees[0]) + 1)
    orders = [np.argsort(each, kind="stable") for each in degrees]
    computed = [np.searchsorted(np.sort(each), steps, side="right").tolist() for each in degrees]
    tensors = list(network.layout.tensors(weights).values())
    layers = []
    for number, (weight, bias) in enumerate(zip(tensors[::2], tensors[1::2], strict=True), start=1):
        last = number == len(degrees)
        rows = torch.from_numpy(orders[0 if last else number])
        columns = torch.from_numpy(orders[number - 1])
        # Outputs depend on units of smaller degree, hidden units also on those of equal degree.
        inputs = computed[number - 1] if last else computed[number - 1][1:]
        layers.append(
            _Layer(weight[rows][:, columns], bias[rows], computed[0 if last else number], inputs)
        )
    return layers


def _made(network: FunctionalModel) -> MADE:
    if not isinstance(network.module, MADE):
        kind = type(network.module).__name__
        raise UnskewError(f"network must be a MADE (got {kind}); make one with the name 'made'")
    return network.module
