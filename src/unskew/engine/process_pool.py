"""The process pool: single-threaded worker processes, for networks that do not vectorise well.

Convolutions on a CPU run best one client at a time in one thread, so each worker trains one client
at a time. Trained vectors are returned in one shared matrix, everything else through pipes. A
client's result does not depend on the worker, so any number of workers gives the same bits.
"""

import multiprocessing
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.multiprocessing as torch_multiprocessing
from torch import Tensor

from unskew.composition.values import Finished, Tensors, Trained
from unskew.engine.client import ClientContext, run_client
from unskew.engine.cohort import ClientTask, CohortResult
from unskew.engine.extras import ExtrasMatrix
from unskew.engine.memory import keep_freed_memory, return_freed_memory
from unskew.engine.shared_tensors import SharedTensorReader, SharedTensors, share
from unskew.engine.trace_cache import TraceCache
from unskew.errors import UnskewError, add_traceback_note

_SHUTDOWN_SECONDS = 2


class ProcessPool:
    """Trains clients in worker processes."""

    kind = "per client"

    def __init__(self, context: ClientContext, workers: int, cohort: int) -> None:
        self._stack = share(torch.empty(cohort, context.network.layout.size))
        self._workers: list[_Worker] = []
        for _ in range(min(workers, cohort)):
            pipes = [worker.pipe for worker in self._workers]
            self._workers.append(_Worker(context, self._stack, pipes))
        self._offsets = context.federation.train.offsets
        self._shared = SharedTensors()

    def train(self, round_: int, tasks: Sequence[ClientTask]) -> CohortResult:
        """Train the clients of one round, the largest first, so that workers finish together."""
        self._shared.begin_round()
        by_size = sorted(range(len(tasks)), key=lambda row: -self._samples(tasks[row].client))
        waiting = deque(by_size)
        trained: list[Trained] = [_UNTRAINED] * len(tasks)
        finished: list[Finished] = [Finished()] * len(tasks)
        extras = ExtrasMatrix(len(tasks))
        idle, busy = list(self._workers), set[_Worker]()
        while waiting or busy:
            while idle and waiting:
                worker, row = idle.pop(), waiting.popleft()
                worker.send(round_, row, tasks[row], self._shared)
                busy.add(worker)
            ready = wait([worker.pipe for worker in busy])
            for worker in [worker for worker in busy if worker.pipe in ready]:
                row, (result, reply) = worker.receive()
                trained[row] = replace(result, vector=self._stack[row])
                finished[row] = Finished(extras.copied(row, reply.extras), _copied(reply.state))
                del reply
                busy.remove(worker)
                idle.append(worker)
                if finished[row].state:
                    return_freed_memory(self._stack[: len(tasks)], len(waiting) + len(busy))
        return CohortResult(self._stack[: len(tasks)], trained, finished)

    def close(self) -> None:
        """End the workers; those that are still training get a few seconds."""
        for worker in self._workers:
            worker.pipe.close()
        deadline = time.monotonic() + _SHUTDOWN_SECONDS
        for worker in self._workers:
            worker.end(deadline)

    def _samples(self, client: int) -> int:
        return int(self._offsets[client + 1] - self._offsets[client])


_UNTRAINED = Trained(torch.empty(0), 0, 0.0)


class _Worker:
    """One process and the pipe to it."""

    def __init__(
        self, context: ClientContext, stack: Tensor, others: "Sequence[Connection[Any, Any]]"
    ) -> None:
        processes: Any = torch_multiprocessing.get_context(start_method())
        self.pipe: Connection[Any, Any]
        self.pipe, theirs = processes.Pipe()
        inherited = [*others, self.pipe] if start_method() == "fork" else []
        self._process = processes.Process(
            target=_serve, args=(theirs, inherited, context, stack), daemon=True
        )
        with warnings.catch_warnings():
            # Python 3.12 warns of any fork in a process with threads. The workers use no locks
            # that those threads may hold: they compute in a single thread.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        theirs.close()
        self._client = -1
        self._known = set[int]()
        """The numbers of the shared tensors that the worker has received."""

    def send(self, round_: int, row: int, task: ClientTask, shared: SharedTensors) -> None:
        self._client = task.client
        refs = shared.put(task.payload, self._known)
        try:
            self.pipe.send((round_, row, replace(task, payload={}), refs))
        except OSError:
            raise self._died() from None

    def receive(self) -> tuple[int, tuple[Trained, Finished]]:
        """Return the row of a client and its outcome, whose tensors are in shared memory."""
        try:
            row, outcome = self.pipe.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if isinstance(outcome, UnskewError):
            raise outcome
        return row, outcome

    def end(self, deadline: float) -> None:
        self._process.join(timeout=max(0, deadline - time.monotonic()))
        if self._process.is_alive():
            self._process.kill()

    def _died(self) -> UnskewError:
        self._process.join(timeout=2)
        return UnskewError(
            f"a worker process ended (exit code {self._process.exitcode}) while training client "
            f"{self._client}; is there enough memory? Fewer workers need less"
        )


def _serve(
    pipe: "Connection[Any, Any]",
    inherited: "Sequence[Connection[Any, Any]]",
    context: ClientContext,
    stack: Tensor,
) -> None:
    """Train the clients whose tasks arrive on the pipe until it closes.

    A forked worker inherits the parent's ends of the pipes. It must close them, or it would never
    notice that the parent has closed its ends or has died.
    """
    for end in inherited:
        end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing is written here
    torch.set_num_threads(1)
    keep_freed_memory()
    context, reader = replace(context, traces=TraceCache()), SharedTensorReader()
    while True:
        try:
            round_, row, task, refs = pipe.recv()
        except (EOFError, OSError):
            return
        task = replace(task, payload=reader.read(refs))
        try:
            trained, finished = run_client(context, round_, task)
        except UnskewError as failure:
            add_traceback_note(failure)
            reply: object = failure
        else:
            stack[row] = trained.vector
            reply = (replace(trained, vector=_UNTRAINED.vector, refs={}), finished)
        try:
            pipe.send((row, reply))
        except OSError:  # the parent has closed the pipe because another client failed
            return


def _copied(tensors: Tensors) -> Tensors:
    """Copy tensors out of the shared memory they arrived in, each of which keeps a file open."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def start_method() -> str:
    """Return the start method of the workers: fork where it is safe, else spawn.

    Forking shares the data without copying it and needs no ``if __name__ == "__main__"`` in the
    user's script. It is safe on Linux as long as this process has not used a GPU; a GPU that the
    machine has and nobody uses does no harm.
    """
    forks = sys.platform == "linux" and "fork" in multiprocessing.get_all_start_methods()
    uses_gpu: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return "fork" if forks and not uses_gpu else "spawn"
