"""The features of a client's samples, and their mean for each class: prototypes."""

import torch
from torch import Tensor

from unskew.composition.values import Client, Step
from unskew.models.layout import Layout, TensorKind

_CHUNK = 1024


def features_of(client: Client, vector: Tensor) -> Tensor:
    """Return the input of the head for each of the client's samples, in evaluation mode."""
    network = client.network
    device = next(network.module.parameters()).device
    vector, found = vector.to(device), [torch.empty(0, head_inputs(network.layout))]
    for start in range(0, len(client.y), _CHUNK):
        x = network.inputs(client.x[start : start + _CHUNK].to(device))
        features = network.forward_eval(vector, x).features
        assert features is not None
        found.append(features.flatten(1).cpu())
    return torch.cat(found)


def prototypes_of(client: Client, features: Tensor) -> Tensor:
    """Return the mean features of each class; zeros for classes of which the client has none."""
    labels = client.y.long().cpu()
    sums = features.new_zeros(client.classes, features.shape[1]).index_add_(0, labels, features)
    return sums / torch.bincount(labels, minlength=client.classes).clamp(min=1)[:, None]


def weighted_prototypes(prototypes: Tensor, weights: Tensor, before: Tensor | None) -> Tensor:
    """Return the clients' mean prototypes; a class that no client has keeps its last one.

    ``prototypes`` are clients x classes x features, ``weights`` clients x classes.
    """
    totals = weights.sum(0)
    mean = (prototypes * weights[:, :, None]).sum(0) / totals.clamp(min=1)[:, None]
    missing = torch.zeros_like(mean) if before is None else before.to(mean)
    return torch.where(totals[:, None] > 0, mean, missing).float()


def distance_to_prototypes(features: Tensor, prototypes: Tensor, y: Tensor) -> Tensor:
    """Return each sample's mean squared distance to the prototype of its class.

    It is 0 for classes without a prototype, whose row is zero.
    """
    known = (prototypes != 0).any(-1).to(features)
    return (features.flatten(1) - prototypes[y]).square().mean(-1) * known[y]


def prototype_term(strength: float, step: Step, prototypes: Tensor | None) -> Tensor | None:
    """Return a term of the loss that keeps the features of samples near their prototypes."""
    if prototypes is None or not strength:
        return None
    assert step.forward_pass is not None
    assert step.forward_pass.features is not None
    distances = distance_to_prototypes(step.forward_pass.features, prototypes, step.batch.y)
    return strength * (distances * step.batch.scale).sum()


def head_inputs(layout: Layout) -> int:
    """Return how many features the head of a network takes."""
    return next(
        entry.shape[1]
        for entry in layout
        if entry.kind is TensorKind.HEAD and len(entry.shape) == 2
    )
