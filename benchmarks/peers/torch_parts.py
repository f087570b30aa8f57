# mypy: ignore-errors
"""What peers on PyTorch share: the network of a workload, and each client's samples as tensors.

The order of layers and the memory format of images are those of the peers' documentation. With
PEERS_TUNED=1 in the environment they are unskew's: pooling before the ReLU, and channels last; and
batches are slices of tensors instead of a DataLoader's.

With PEERS_PRECISION=bf16 layers compute in bfloat16 during training, as with unskew's
``precision="bf16"``; weights, gradients and steps stay float32.
"""

import os

import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.tutorial_networks import tutorial_network
from unskew.models import make


def network_of(work):
    """Build the network of a workload."""
    if not _tuned(work):
        return tutorial_network(work.model, work.shape)
    return make(work.model, work.shape, 10).to(memory_format=torch.channels_last)


def samples_of(work):
    """Return inputs and labels, both as one tensor per client."""
    x, y = (torch.from_numpy(array) for array in work.data())
    if _tuned(work):
        # With one channel both formats have the same bytes, so contiguous() would change nothing.
        x = torch.empty_like(x, memory_format=torch.channels_last).copy_(x)
    return x.split(work.samples), y.split(work.samples)


def batches_of(work, x, y):
    """Yield shuffled batches of one client, for peers that leave batching to their users."""
    if not _tuned(work):
        yield from DataLoader(TensorDataset(x, y), work.batch, shuffle=True)
        return
    for rows in torch.randperm(work.samples).split(work.batch):
        yield x[rows], y[rows]


def training_dtype():
    """Return the type in which layers compute during training, or None for float32."""
    return torch.bfloat16 if os.environ.get("PEERS_PRECISION") == "bf16" else None


def _tuned(work):
    return len(work.shape) == 3 and os.environ.get("PEERS_TUNED") == "1"
