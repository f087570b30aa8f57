"""Parallel runs: one worker process and one core per run, with one progress display for all.

The results of a run depend on its seed, never on the process it runs in, so parallel runs give the
same bits as sequential ones. Workers send their runs back with cloudpickle, which can also pickle
networks that pickle cannot: instances of classes defined inside a function, or with a lambda as an
attribute. Only these pipes are unpickled, never a file or a message of a node.
"""

import multiprocessing
import os
import pickle
import signal
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import cloudpickle
import torch

from unskew.engine.pool import start_method
from unskew.engine.progress import ProgressDisplay, RoundCallback
from unskew.errors import UnskewError, add_traceback_note
from unskew.runs.run import Run

Job = Callable[[RoundCallback], Run]
"""Executes a run, and calls the callback after each round."""

_SHUTDOWN_SECONDS = 10
"""How long a worker may take to write its checkpoint before it is killed."""


def cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def can_run_in_parallel(model: object) -> bool:
    """Return whether runs can be executed in forked processes that send the model back.

    This also makes cloudpickle remember the model's classes, so that workers forked later send back
    instances of the same classes and not of copies.
    """
    try:
        cloudpickle.dumps(model)
    except Exception:  # a custom module may raise anything; it is then trained in this process
        return False
    return start_method() == "fork"


def run_jobs(
    labels: Sequence[str],
    job: Callable[[int], Job],
    display: ProgressDisplay,
    parallelism: int,
    rounds: Sequence[int] | None = None,
    finished: Sequence[bool] | None = None,
) -> list[Run]:
    """Execute one job per label: one by one in this process, or in parallel workers.

    ``job`` creates the job of a label, given its index. ``rounds`` is the number of rounds of each
    job, where it differs from the display's. ``finished`` marks the jobs that only read a run;
    these are executed in this process.
    """
    if parallelism > 1:
        return run_in_processes(labels, job, display, parallelism, rounds, finished)
    runs = []
    for index, label in enumerate(labels):
        on_round = display.start(label, None if rounds is None else rounds[index])
        runs.append(job(index)(on_round))
        display.finish(label)
    return runs


def run_in_processes(
    labels: Sequence[str],
    job: Callable[[int], Job],
    display: ProgressDisplay,
    parallelism: int,
    rounds: Sequence[int] | None = None,
    finished: Sequence[bool] | None = None,
) -> list[Run]:
    """Execute one job per label, ``parallelism`` at a time, and return the runs in label order.

    ``job`` creates the job of a label, given its index; it is called in this process when a worker
    is free. A job that is ``finished`` is executed here too: it takes less time than a fork. The
    first job that fails stops the others, which write a checkpoint, and its error is raised.
    """
    waiting = list(reversed(range(len(labels))))
    workers: list[_Worker] = []
    runs: dict[int, Run] = {}
    try:
        while waiting or workers:
            while waiting and len(workers) < parallelism:
                index = waiting.pop()
                on_round = display.start(labels[index], None if rounds is None else rounds[index])
                if finished is not None and finished[index]:
                    runs[index] = job(index)(on_round)
                    display.finish(labels[index])
                    continue
                pipes = [worker.pipe for worker in workers]
                workers.append(_start(job(index), index, on_round, pipes))
            if not workers:
                break
            ready = wait([worker.pipe for worker in workers])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                run = worker.read()
                if run is not None:
                    runs[worker.index] = run
                    workers.remove(worker)
                    worker.end()
                    display.finish(labels[worker.index])
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.end()
    return [runs[index] for index in range(len(labels))]


@dataclass(eq=False)
class _Worker:
    """A process that executes one run, and the pipe it reports through."""

    index: int
    pipe: "Connection[Any, Any]"
    process: BaseProcess
    on_round: RoundCallback

    def read(self) -> Run | None:
        """Read one message: pass a round on to the callback, or return the finished run."""
        try:
            message = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            self.process.join(timeout=2)
            raise UnskewError(
                f"a worker process ended unexpectedly (exit code {self.process.exitcode}); "
                "if memory ran out, use fewer jobs"
            ) from None
        if isinstance(message, Exception):
            raise message
        if isinstance(message, Run):
            return message
        self.on_round(*message)
        return None

    def end(self) -> None:
        """Wait for the process, which has finished or was asked to stop."""
        self.process.join(timeout=_SHUTDOWN_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.pipe.close()


def _start(job: Job, index: int, on_round: RoundCallback, inherited: Sequence[Any]) -> _Worker:
    context = multiprocessing.get_context("fork")
    parent_end, child_end = context.Pipe()
    process = context.Process(target=_execute, args=(job, child_end, [parent_end, *inherited]))
    with warnings.catch_warnings():
        # Python 3.12 warns about forking a process with threads; the child uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    child_end.close()
    return _Worker(index, parent_end, process, on_round)


def _execute(
    job: Job, pipe: "Connection[Any, Any]", inherited: "Sequence[Connection[Any, Any]]"
) -> None:
    """Execute a job in a worker process and send its rounds, run or error through the pipe.

    Ctrl-C is handled by the parent process, which then asks this one to stop, once, so that nothing
    interrupts the checkpoint written on the way out.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for end in inherited:
        end.close()
    torch.set_num_threads(1)

    def report(round_: int, metrics: Mapping[str, Any]) -> None:
        pipe.send_bytes(pickle.dumps((round_, dict(metrics))))

    with suppress(KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        # The parent asked to stop, or has ended: the checkpoint is already written.
        signal.signal(signal.SIGTERM, _stop)
        try:
            message = cloudpickle.dumps(job(report))
        except Exception as error:
            message = _pickled(error)
        pipe.send_bytes(message)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the process is about to end by itself


def _stop(number: int, frame: object) -> None:
    del number, frame
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _pickled(error: Exception) -> bytes:
    """Pickle an error; a bug carries its traceback as a note."""
    if not isinstance(error, UnskewError) or error.__cause__ is not None:
        add_traceback_note(error)
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return pickled
