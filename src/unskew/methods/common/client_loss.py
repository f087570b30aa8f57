"""A model's loss on a client's training samples, by which some methods choose or weight models."""

import torch
from torch import Tensor

from unskew.composition.values import Client
from unskew.models.functional import Batch

_CHUNK = 1024


@torch.no_grad()
def training_loss(client: Client, vector: Tensor) -> float:
    """Return the mean loss over the client's samples, in evaluation mode; 0 without samples."""
    network, count = client.network, len(client.y)
    device = next(network.module.parameters()).device
    vector = vector.to(device)
    trainable = network.layout.trainable
    weights, buffers = vector[:trainable], network.buffers_of(vector[trainable:])
    total = 0.0
    network.module.eval()
    for start in range(0, count, _CHUNK):
        rows = slice(start, start + _CHUNK)
        y = client.y[rows].to(device, network.goal.target_dtype)
        batch = Batch(network.inputs(client.x[rows].to(device)), y, torch.ones(len(y)).to(device))
        total += float(network.losses(weights, buffers, batch).sum(dtype=torch.float64))
    network.module.train()
    return total / max(1, count)
