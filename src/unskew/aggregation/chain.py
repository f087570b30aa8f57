"""A network as a chain of layers whose hidden units can be permuted.

Permuting the units of one layer together with the inputs of the next leaves the network's function
unchanged; matched averaging relies on this.
"""

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from unskew.errors import UnskewError
from unskew.models.layout import Entry, Layout, TensorKind


@dataclass(frozen=True)
class Layer:
    """A weight (units x inputs x kernel) and the vectors that hold one number per unit."""

    weight: Entry
    vectors: tuple[Entry, ...]

    @property
    def units(self) -> int:
        """The number of outputs of the layer."""
        return self.weight.shape[0]


def chain_of(layout: Layout) -> tuple[Layer, ...]:
    """Return the linear layers and convolutions in order, with their biases and normalisations.

    Shapes alone cannot distinguish a chain from a network with skip connections, so the caller
    must also check that permuting units leaves the outputs unchanged.
    """
    layers: list[Layer] = []
    for entry in layout.parameters:
        if len(entry.shape) >= 2:
            layers.append(Layer(entry, ()))
        elif layers and entry.shape == (layers[-1].units,):
            layers[-1] = Layer(layers[-1].weight, (*layers[-1].vectors, entry))
        else:
            raise _no_chain(entry)
    statistics = [entry for entry in layout.buffers if entry.kind is not TensorKind.COUNTER]
    layers = [_with_statistics(layer, statistics) for layer in layers]
    placed = {entry.name for layer in layers for entry in layer.vectors}
    unassigned = [entry for entry in statistics if entry.name not in placed]
    mismatched = [b.weight for a, b in pairwise(layers) if not _follows(a, b)]
    if unassigned or mismatched:
        raise _no_chain((unassigned + mismatched)[0])
    return tuple(layers)


def renumber(vector: Tensor, layers: tuple[Layer, ...], number: int, order: Tensor) -> None:
    """Permute the units of one hidden layer in place."""
    layer, following = layers[number], layers[number + 1]
    for entry in (layer.weight, *layer.vectors):
        rows = vector[entry.slice].view(layer.units, -1)
        rows.copy_(rows[order])
    inputs = vector[following.weight.slice].view(following.units, layer.units, -1)
    inputs.copy_(inputs[:, order])


def _with_statistics(layer: Layer, statistics: list[Entry]) -> Layer:
    """Add the running statistics of the layer's normalisation."""
    owners = {entry.name.rpartition(".")[0] for entry in layer.vectors}
    added = [entry for entry in statistics if entry.name.rpartition(".")[0] in owners]
    return Layer(layer.weight, (*layer.vectors, *added))


def _follows(layer: Layer, following: Layer) -> bool:
    """Return whether the inputs match the units; a flattened map has several inputs per unit."""
    inputs, rest = divmod(following.weight.shape[1], layer.units)
    return rest == 0 and (inputs == 1 or len(following.weight.shape) == 2)


def _no_chain(entry: Entry) -> UnskewError:
    return UnskewError(
        f"model: {entry.name} {entry.shape} does not fit the previous layer, so units cannot "
        "be matched; use a plain chain of linear layers or convolutions such as mlp or lenet5"
    )
