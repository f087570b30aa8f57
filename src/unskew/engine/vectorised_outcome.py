"""Where the chunks of a vectorised cohort write their results."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.composition.values import Finished, Trained
from unskew.engine.extras import ExtrasMatrix
from unskew.engine.memory import is_large, return_freed_memory
from unskew.engine.placement import to_device


class CohortOutcome:
    """The results of a cohort, which its chunks write into the rows of their clients."""

    def __init__(self, clients: int, size: int, device: torch.device) -> None:
        self.device = device
        self.stack = torch.empty(clients, size, device=device)
        self.trained = [Trained(self.stack[:0], 0, 0.0)] * clients
        self.finished = [Finished()] * clients
        self._models = self.stack.unbind()
        self._extras = ExtrasMatrix(clients) if is_large(self.stack) else None
        self._missing = clients

    def write_models(self, rows: NDArray[np.int64], models: Tensor) -> None:
        """Copy the models of a chunk into these rows."""
        self.stack.index_copy_(0, to_device(torch.from_numpy(rows), self.device), models)

    def write(self, row: int, trained: Trained, finished: Finished) -> None:
        """Keep the results of one client, without the tensors of its chunk."""
        if self._extras is not None:
            finished = Finished(self._extras.copied(row, finished.extras), finished.state)
        self.trained[row] = replace(trained, vector=self._models[row], refs={})
        self.finished[row] = finished
        self._missing -= 1
        if finished.state:
            return_freed_memory(self.stack, self._missing)
