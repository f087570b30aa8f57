# mypy: ignore-errors
"""What peers on PyTorch share: unskew's own network, and each client's samples as tensors.

Images and convolutions lie as the peers' documentation has them. With PEERS_CHANNELS_LAST=1 in the
environment they lie channels-last, as in unskew: on a CPU PyTorch computes them faster.
"""

import os

import torch

from unskew.models import make


def network_of(work):
    """Build the network of a workload."""
    network = make(work.model, work.shape, 10)
    return network.to(memory_format=torch.channels_last) if _reorders(work) else network


def samples_of(work):
    """Return inputs and labels, both as one tensor a client."""
    x, y = (torch.from_numpy(array) for array in work.data())
    if _reorders(work):
        # With one channel both orders have the same bytes, and a mere request changes nothing.
        x = torch.empty_like(x, memory_format=torch.channels_last).copy_(x)
    return x.split(work.samples), y.split(work.samples)


def _reorders(work):
    return len(work.shape) == 3 and os.environ.get("PEERS_CHANNELS_LAST") == "1"
