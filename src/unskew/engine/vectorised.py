"""The vectorised runner: a whole cohort in one batched computation.

The cohort is sorted by steps and split into chunks that fit into memory; each chunk is trained as
one matrix (``vectorised_chunk``).
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from unskew.engine.batches import local_steps
from unskew.engine.chunks import Chunks
from unskew.engine.client import ClientContext, after_extra_training
from unskew.engine.cohort import ClientTask, CohortResult
from unskew.engine.placement import is_accelerator, samples_on, to_tensor
from unskew.engine.trace_cache import TraceCache
from unskew.engine.vectorised_chunk import Chunk
from unskew.engine.vectorised_outcome import CohortOutcome
from unskew.errors import UnskewError


class Vectorised:
    """Trains the cohort as rows of one matrix."""

    kind = "vectorised"

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        train = context.federation.train
        self._data = to_tensor(train.x), to_tensor(train.y)
        """What the hooks of methods see, which is always on the CPU."""
        self._on_device = self._data
        if is_accelerator(context.device):
            self._on_device = samples_on(context.device, train)
        self._chunk_sizes = Chunks(context)
        self._fits_on_accelerator = is_accelerator(context.device) and self._fits_in_one_chunk()
        self._traces: dict[int, TraceCache] = {}
        """One cache per training of the round, since their objectives differ."""

    def train(self, round_: int, tasks: Sequence[ClientTask]) -> CohortResult:
        """Train the clients of one round."""
        context = self._context.in_round(round_)
        for number, extra in enumerate(context.extra_trainings):
            done = self._train_once(extra, round_, tasks, self._traces_of(number))
            tasks = [
                after_extra_training(task, trained, finished)
                for task, trained, finished in zip(tasks, done.trained, done.finished, strict=True)
            ]
        return self._train_once(context, round_, tasks, self._traces_of(-1))

    def _traces_of(self, training: int) -> TraceCache:
        """Return the traces of a training: of an extra one, by its number, or of the round's."""
        return self._traces.setdefault(training, TraceCache())

    def _train_once(
        self, context: ClientContext, round_: int, tasks: Sequence[ClientTask], traces: TraceCache
    ) -> CohortResult:
        ids = np.array([task.client for task in tasks])
        offsets, network = context.federation.train.offsets, context.network
        sizes = offsets[ids + 1] - offsets[ids]
        if network.couples_samples and np.any(sizes != sizes[0]):
            raise UnskewError(
                "runner: 'vectorised' supports networks with BatchNorm only if all clients have "
                "the same number of samples, since padding would change their statistics; "
                "use runner='processes'"
            )
        steps = local_steps(sizes, context.settings, couples=network.couples_samples)
        order = np.argsort(-steps, kind="stable")
        outcome = CohortOutcome(len(tasks), network.layout.size, self._home_of_models(context))
        for rows in self._chunks(order, sizes):
            chunk_tasks = [tasks[k] for k in rows.tolist()]
            chunk = Chunk(context, round_, chunk_tasks, self._data, self._on_device, traces)
            chunk.run(outcome, rows)
        return CohortResult(outcome.stack, outcome.trained, outcome.finished)

    def close(self) -> None:
        """Nothing to release."""

    def _fits_in_one_chunk(self) -> bool:
        """Return whether any cohort would be trained as one matrix, from the memory there is now.

        It is decided once, so that all rounds of a run are aggregated on the same device.
        """
        federation = self._context.federation
        cohort = self._context.settings.cohort_size(len(federation))
        return self._chunk_sizes.clients(int(federation.train.sizes.max(initial=0))) >= cohort

    def _home_of_models(self, context: ClientContext) -> torch.device:
        """Return the device on which trained models are aggregated."""
        stay = (
            self._fits_on_accelerator
            and context.method.works_on_any_device
            and context.attack is None
        )
        return context.device if stay else torch.device("cpu")

    def _chunks(
        self, order: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> Iterator[NDArray[np.int64]]:
        """Split the sorted cohort into chunks that fit into memory."""
        start = 0
        while start < len(order):
            length = self._chunk_sizes.clients(int(sizes[order[start]]))
            yield order[start : start + length]
            start += length
