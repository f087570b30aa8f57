"""Several runs at once, a process and a core each, watched from one place.

A run's numbers depend on its seed alone, never on the process it runs in, so that runs beside each
other give the same bits as one after the other.
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

import torch

from unskew.engine.pool import start_method
from unskew.engine.progress import Board, Watcher
from unskew.errors import UnskewError, add_traceback_note
from unskew.runs.run import Run

Job = Callable[[Watcher], Run]
"""Plays a run, and calls the watcher after each round."""

_PATIENCE = 10
"""Seconds that a process gets to make its checkpoint."""


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def can_run_in_parallel(model: object) -> bool:
    """Tell whether runs can be played in forked processes, and the model sent back from there."""
    try:
        pickle.dumps(model)
    except Exception:  # whatever a user's module raises: it is played here
        return False
    return start_method() == "fork"


def run_jobs(
    labels: Sequence[str],
    job: Callable[[int], Job],
    board: Board,
    parallelism: int,
    rounds: Sequence[int] | None = None,
) -> list[Run]:
    """Play a job for every label: in this process one by one, or in several at once.

    ``rounds`` are those of each job, where they differ from the board's.
    """
    if parallelism > 1:
        return run_in_processes(labels, job, board, parallelism, rounds)
    runs = []
    for place, label in enumerate(labels):
        watcher = board.start(label, None if rounds is None else rounds[place])
        runs.append(job(place)(watcher))
        board.finish(label)
    return runs


def run_in_processes(
    labels: Sequence[str],
    job: Callable[[int], Job],
    board: Board,
    parallelism: int,
    rounds: Sequence[int] | None = None,
) -> list[Run]:
    """Play a job for every label, so many at once, and return their runs in that order.

    ``job`` makes the job of a label's place, here, when its turn has come. The first one that
    fails ends the others, which make a checkpoint, and its error is raised.
    """
    waiting = list(reversed(range(len(labels))))
    running: list[_Running] = []
    runs: dict[int, Run] = {}
    try:
        while waiting or running:
            while waiting and len(running) < parallelism:
                place = waiting.pop()
                watcher = board.start(labels[place], None if rounds is None else rounds[place])
                running.append(_start(job(place), place, watcher, [one.pipe for one in running]))
            ready = wait([one.pipe for one in running])
            for one in [one for one in running if one.pipe in ready]:
                run = one.read()
                if run is not None:
                    runs[one.place] = run
                    running.remove(one)
                    one.end()
                    board.finish(labels[one.place])
    finally:
        for one in running:
            one.process.terminate()
        for one in running:
            one.end()
    return [runs[place] for place in range(len(labels))]


@dataclass(eq=False)
class _Running:
    place: int
    pipe: "Connection[Any, Any]"
    process: BaseProcess
    watcher: Watcher

    def read(self) -> Run | None:
        """Pass a round on to the watcher, or return the finished run."""
        try:
            message = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            self.process.join(timeout=2)
            raise UnskewError(
                f"a run's process ended (exit code {self.process.exitcode}); is there enough "
                "memory? Fewer jobs need less"
            ) from None
        if isinstance(message, Exception):
            raise message
        if isinstance(message, Run):
            return message
        self.watcher(*message)
        return None

    def end(self) -> None:
        """Wait for the process, which is done or was told to stop."""
        self.process.join(timeout=_PATIENCE)
        if self.process.is_alive():
            self.process.kill()
        self.pipe.close()


def _start(job: Job, place: int, watcher: Watcher, inherited: Sequence[Any]) -> _Running:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_execute, args=(job, theirs, [ours, *inherited]))
    with warnings.catch_warnings():
        # Python 3.12 warns of any fork in a process with threads, none of which is used there.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    theirs.close()
    return _Running(place, ours, process, watcher)


def _execute(
    job: Job, pipe: "Connection[Any, Any]", inherited: "Sequence[Connection[Any, Any]]"
) -> None:
    """Play a job in a process of its own and send what happens through the pipe.

    Ctrl-C is for the process that started it, which then asks this one to stop, once: so that
    nothing disturbs the checkpoint that is made on the way out.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for end in inherited:
        end.close()
    torch.set_num_threads(1)

    def tell(round_: int, metrics: Mapping[str, Any]) -> None:
        pipe.send_bytes(pickle.dumps((round_, dict(metrics))))

    with suppress(KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        # Told to stop, or nobody listens any more: the checkpoint is made.
        signal.signal(signal.SIGTERM, _stop)
        try:
            message = pickle.dumps(job(tell))
        except Exception as error:
            message = _packed(error)
        pipe.send_bytes(message)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends by itself


def _stop(number: int, frame: object) -> None:
    del number, frame
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _packed(error: Exception) -> bytes:
    """Pack an error; one that is a bug brings the place where it happened."""
    if not isinstance(error, UnskewError) or error.__cause__ is not None:
        add_traceback_note(error)
    try:
        packed = pickle.dumps(error)
        pickle.loads(packed)
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return packed
