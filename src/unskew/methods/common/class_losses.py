"""What losses that depend on a client's classes share: its class counts, and the cross-entropy."""

import torch
import torch.nn.functional as F
from torch import Tensor

from unskew.composition.values import Client


def class_counts(client: Client) -> Tensor:
    """Return how many samples a client has of each class."""
    return torch.bincount(client.y.long(), minlength=client.classes).float()


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Return each sample's cross-entropy.

    It does not call ``F.cross_entropy``, which vmap decomposes step by step in Python.
    """
    return -F.log_softmax(logits, dim=-1).gather(-1, y.unsqueeze(-1)).squeeze(-1)


def for_outputs(values: Tensor, logits: Tensor, missing: float) -> Tensor:
    """Return one value per output; outputs that no class uses get the value of missing classes."""
    return F.pad(values, (0, logits.shape[-1] - values.shape[-1]), value=missing)
