"""Clusters of clients on a tensor's high-dispersion coordinates: the second half of FedSA.

Micro-classes are uint8 tensors of clients x coordinates with values from 1 to C. They are counted
by matrix products of class indicators, block by block.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.aggregation.blocks import column_blocks, in_threads
from unskew.aggregation.distances import sum_of_products


def agreements(micro: Tensor, classes: int) -> Tensor:
    """Count for each pair of clients the coordinates on which their micro-classes agree."""

    def indicators(block: Tensor, memory: Tensor) -> Iterator[Tensor]:
        return _indicators(block, classes, memory)

    return sum_of_products(micro, torch.float32, indicators)


@dataclass(frozen=True, eq=False)
class Clusters:
    """Tensors of clusters x clients: membership (0 or 1), and weights in the cluster's mean."""

    members: Tensor
    means: Tensor

    @classmethod
    def of(cls, labels: Tensor, weights: Tensor) -> "Clusters":
        """Build the matrices from one label (-1: none) and one weight per client."""
        numbers = torch.arange(int(labels.max()) + 1, device=labels.device)
        members = (labels[None, :] == numbers[:, None]).to(torch.float32)
        shares = members * weights
        # A cluster whose clients all have zero weight takes their unweighted mean.
        shares = torch.where(shares.sum(1, keepdim=True) > 0, shares, members)
        return cls(members, (shares / shares.sum(1, keepdim=True)).to(torch.float32))

    def macro_classes(self, micro: Tensor, classes: int) -> Tensor:
        """Return the most common class of each cluster's members; ties go to the smallest class."""
        found = torch.ones(len(self.members), micro.shape[1], dtype=torch.uint8)
        found = found.to(micro.device)

        def work(columns: slice) -> None:
            most, block = torch.zeros(()), micro[:, columns]
            memory = torch.empty_like(block, dtype=torch.float32)
            for each, indicator in enumerate(_indicators(block, classes, memory), start=1):
                count = self.members @ indicator
                found[:, columns].masked_fill_(count > most, each)
                most = torch.maximum(most, count)

        in_threads(work, column_blocks(*micro.shape), micro)
        return found


def _indicators(block: Tensor, classes: int, memory: Tensor) -> Iterator[Tensor]:
    """Yield an indicator matrix per class, always in the same memory."""
    values = block.float()
    for each in range(1, classes + 1):
        yield torch.eq(values, each, out=memory)


def macro_class_counts(macro: Tensor, classes: int) -> Tensor:
    """Count the coordinates of each macro-class: clusters x classes."""
    return torch.stack([torch.bincount(row, minlength=classes + 1)[1:] for row in macro]).to(
        torch.float32
    )
