"""A network's layers, and masks of its head and of its top layers."""

import torch
from torch import Tensor

from unskew.errors import UnskewError
from unskew.models.layout import Entry, Layout, TensorKind


def head_mask(layout: Layout) -> Tensor:
    """Mark the head, including its buffers; raise an error if the network has none."""
    owners = {_owner(entry.name) for entry in layout if entry.kind is TensorKind.HEAD}
    if not owners:
        raise UnskewError(
            "model: the method treats the head separately, and this network has none; "
            "name its last module 'head', or let it end in a linear layer"
        )
    return layout.mask_where(lambda entry: _owner(entry.name) in owners)


def top_layers(layout: Layout, count: int) -> Tensor:
    """Mark the trainable tensors of the last ``count`` layers; the head is the last layer."""
    layers = layers_of(layout)
    mask = torch.zeros(layout.size, dtype=torch.bool)
    for layer in layers[max(0, len(layers) - count) :]:
        for entry in layer:
            mask[entry.slice] = True
    return mask


def layers_of(layout: Layout) -> list[list[Entry]]:
    """Return the trainable tensors of each layer; the head is the last layer.

    A layer is a module with weights; a normalisation layer belongs to the layer before it. Layers
    are in the order in which the network defines them.
    """
    layers: list[list[Entry]] = []
    for entry in sorted(layout.parameters, key=lambda entry: entry.kind is TensorKind.HEAD):
        same = layers and _owner(layers[-1][0].name) == _owner(entry.name)
        if layers and (same or entry.kind is TensorKind.NORM_AFFINE):
            layers[-1].append(entry)
        else:
            layers.append([entry])
    return layers


def _owner(name: str) -> str:
    return name.rpartition(".")[0]
