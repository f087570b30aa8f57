"""A network as a chain of layers whose hidden units can be renumbered.

Renumbering the units of one layer together with the inputs of the next leaves the function as it
is; that is what matched averaging rests on.
"""

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from unskew.errors import UnskewError
from unskew.models.layout import Entry, Kind, Layout


@dataclass(frozen=True)
class Layer:
    """A weight (units x inputs, and a kernel), and vectors with one number a unit beside it."""

    weight: Entry
    vectors: tuple[Entry, ...]

    @property
    def units(self) -> int:
        """How many outputs the layer has."""
        return self.weight.shape[0]


def chain_of(layout: Layout) -> tuple[Layer, ...]:
    """Read linear layers and convolutions, in order, with their biases and normalisations.

    Shapes alone cannot tell a chain from a network with shortcuts: try it out too.
    """
    layers: list[Layer] = []
    for entry in layout.parameters:
        if len(entry.shape) >= 2:
            layers.append(Layer(entry, ()))
        elif layers and entry.shape == (layers[-1].units,):
            layers[-1] = Layer(layers[-1].weight, (*layers[-1].vectors, entry))
        else:
            raise _no_chain(entry)
    statistics = [entry for entry in layout.buffers if entry.kind is not Kind.COUNTER]
    layers = [_with_statistics(layer, statistics) for layer in layers]
    placed = {entry.name for layer in layers for entry in layer.vectors}
    lost = [entry for entry in statistics if entry.name not in placed]
    unfit = [b.weight for a, b in pairwise(layers) if not _follows(a, b)]
    if lost or unfit:
        raise _no_chain((lost + unfit)[0])
    return tuple(layers)


def renumber(vector: Tensor, layers: tuple[Layer, ...], number: int, order: Tensor) -> None:
    """Put the units of one hidden layer into another order, in place."""
    layer, following = layers[number], layers[number + 1]
    for entry in (layer.weight, *layer.vectors):
        rows = vector[entry.place].view(layer.units, -1)
        rows.copy_(rows[order])
    inputs = vector[following.weight.place].view(following.units, layer.units, -1)
    inputs.copy_(inputs[:, order])


def _with_statistics(layer: Layer, statistics: list[Entry]) -> Layer:
    """Add the running statistics of the layer's own normalisation."""
    owners = {entry.name.rpartition(".")[0] for entry in layer.vectors}
    own = [entry for entry in statistics if entry.name.rpartition(".")[0] in owners]
    return Layer(layer.weight, (*layer.vectors, *own))


def _follows(layer: Layer, following: Layer) -> bool:
    """Tell whether the inputs are the units; a flattened map has several inputs a unit."""
    inputs, rest = divmod(following.weight.shape[1], layer.units)
    return rest == 0 and (inputs == 1 or len(following.weight.shape) == 2)


def _no_chain(entry: Entry) -> UnskewError:
    return UnskewError(
        f"model: {entry.name} {entry.shape} does not follow from the layer before, so units cannot "
        "be matched; use a plain chain of linear layers or convolutions such as mlp or lenet5"
    )
