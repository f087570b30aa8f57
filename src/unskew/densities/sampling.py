"""Draw samples from a MADE, and tell how likely samples are under it.

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
from unskew.models.made import Made
from unskew.models.unit_interval import check_unit_interval

_CHUNK = 4096
"""Samples drawn side by side; what is known of them should stay in the cache."""


def draw(network: FunctionalModel, weights: Tensor, count: int, generator: Generator) -> Tensor:
    """Return samples as rows of zeros and ones, flattened, in the type of the weights.

    They are numbers, not bytes: bytes would be taken for grey levels and divided by 255.
    """
    features = len(_made(network).degrees[0])
    sizes = [min(_CHUNK, count - start) for start in range(0, count, _CHUNK)]
    pieces = [
        draw_by(network, weights, torch.rand(size, features, generator=generator).to(weights))
        for size in sizes
    ]
    return torch.cat(pieces) if pieces else weights.new_empty(0, features)


@torch.no_grad()
def draw_by(network: FunctionalModel, weights: Tensor, uniforms: Tensor) -> Tensor:
    """Return the samples that uniform numbers in [0, 1), one a sample and feature, decide.

    A feature is 1 where its number is below its probability.
    """
    degrees = _made(network).degrees
    ranks = torch.from_numpy(degrees[0] - 1)
    *layers, output = _sorted_layers(network, weights)
    rows = uniforms.new_empty(uniforms.shape[::-1])
    rows[ranks] = uniforms.T
    # By layer, a row a unit in the order of degrees; rows are valid up to the units known so far.
    known = [torch.empty_like(rows)]
    known += [rows.new_empty(len(layer.bias), rows.shape[1]) for layer in layers]
    for feature, uniform in enumerate(rows):
        final = output.seen[feature]
        logit = output.weight[feature, :final] @ known[-1][:final] + output.bias[feature]
        known[0][feature] = uniform < torch.sigmoid(logit)
        for layer, before, after in zip(layers, known, known[1:], strict=False):
            units = slice(layer.done[feature], layer.done[feature + 1])
            if units.start < units.stop:
                seen = layer.seen[feature]
                drive = layer.weight[units, :seen] @ before[:seen] + layer.bias[units, None]
                after[units] = drive.relu_()
    return known[0][ranks].T.contiguous()


@torch.no_grad()
def log_density(network: FunctionalModel, weights: Tensor, x: Tensor) -> Tensor:
    """Return each sample's log-likelihood in nats, in double precision.

    For binary samples it is the logarithm of their probability; grey levels count as the share of
    ones among many binary samples, whose mean log-likelihood it then is.
    """
    _made(network)
    check_unit_interval(x, "x")
    inputs = network.inputs(x)
    logits = network(weights, {}, inputs).double()
    return -bernoulli_losses(logits, inputs.flatten(1).double())


@dataclass(frozen=True, eq=False)
class _Layer:
    """A layer with rows and columns in the order of degrees, so that masks become ranges.

    When as many features are drawn as an index says, ``done`` units of this layer are known;
    ``seen`` is how many units below count at that feature.
    """

    weight: Tensor
    bias: Tensor
    done: list[int]
    seen: list[int]


def _sorted_layers(network: FunctionalModel, weights: Tensor) -> list[_Layer]:
    """Sort the units of all layers by degree; the last layer has a row a feature."""
    degrees = _made(network).degrees
    steps = np.arange(len(degrees[0]) + 1)
    orders = [np.argsort(each, kind="stable") for each in degrees]
    done = [np.searchsorted(np.sort(each), steps, side="right").tolist() for each in degrees]
    tensors = list(network.layout.tensors(weights).values())
    layers = []
    for number, (weight, bias) in enumerate(zip(tensors[::2], tensors[1::2], strict=True), start=1):
        last = number == len(degrees)
        rows = torch.from_numpy(orders[0 if last else number])
        columns = torch.from_numpy(orders[number - 1])
        # Outputs see units of smaller degree, hidden units those of their own degree as well.
        seen = done[number - 1] if last else done[number - 1][1:]
        layers.append(
            _Layer(weight[rows][:, columns], bias[rows], done[0 if last else number], seen)
        )
    return layers


def _made(network: FunctionalModel) -> Made:
    if not isinstance(network.module, Made):
        kind = type(network.module).__name__
        raise UnskewError(f"network must be a MADE (got {kind}); make one by the name 'made'")
    return network.module
