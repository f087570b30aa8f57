"""Runs in processes of this machine: each is forked when it is submitted, and uses one core.

Forking shares the data and the imported packages, so a run starts in milliseconds. Results and
errors come back through a pipe with cloudpickle, which can also pickle networks that pickle cannot:
instances of classes defined inside a function, or with a lambda as an attribute. Only these pipes
are unpickled, never a file or a message of a node.
"""

import multiprocessing
import os
import pickle
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

import cloudpickle
import torch

from unskew.engine.model_factory import instantiate
from unskew.engine.process_pool import start_method
from unskew.errors import UnskewError, add_traceback_note
from unskew.models.functional import Model

Pipe: TypeAlias = "Connection[Any, Any]"

_SHUTDOWN_SECONDS = 10
"""How long a run may take to write its checkpoint before its process is killed."""


def cores() -> int:
    """Return the number of cores this process may use."""
    can_be_limited = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if can_be_limited else os.cpu_count() or 1


def can_run_in_parallel(model: Model | None) -> bool:
    """Return whether runs can be executed in forked processes that send the network back.

    This also makes cloudpickle remember a custom network's classes, so that workers forked later
    send back instances of the same classes and not of copies.
    """
    try:
        cloudpickle.dumps(None if isinstance(model, str | None) else instantiate(model, seed=0))
    except Exception:  # a custom network may raise anything; it is then trained in this process
        return False
    return start_method() == "fork"


class ForkedProcesses(Executor):
    """Calls each function in a process of its own; whoever submits decides how many there are."""

    def __init__(self) -> None:
        self._workers: dict[Future[Any], tuple[BaseProcess, Pipe]] = {}
        # No other thread may be in the middle of something when a child is forked: of unpickling,
        # whose locks it would inherit, or of closing a pipe, which it would close again and fail.
        self._forking = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Fork a process that calls a function.

        Its one argument is a function, which is called here, in a thread, with the arguments of
        every call that the process makes.
        """
        del kwargs
        (report,), future = args, Future[Any]()
        context = multiprocessing.get_context("fork")
        with self._forking, warnings.catch_warnings():
            ours, theirs = context.Pipe(duplex=False)
            inherited = [ours, *(pipe for _, pipe in self._workers.values())]
            process = context.Process(target=_serve, args=(fn, theirs, inherited))
            # Python 3.12 warns about forking a process with threads; the child uses none of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
            theirs.close()
            self._workers[future] = process, ours
        threading.Thread(target=self._read, args=(future, report), daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the processes; with ``cancel_futures`` they write a checkpoint and end."""
        del wait
        workers = dict(self._workers)
        for process, _ in workers.values() if cancel_futures else ():
            process.terminate()
        _, late = wait_for(workers, timeout=_SHUTDOWN_SECONDS if cancel_futures else None)
        for future in late:
            workers[future][0].kill()
        wait_for(late)

    def _read(self, future: Future[Any], report: Callable[..., None]) -> None:
        """Pass on what a process sends until it ends."""
        process, pipe = self._workers[future]
        outcome: Any = None
        try:
            while True:
                message = pipe.recv_bytes()
                with self._forking:
                    outcome, is_report = pickle.loads(message)
                if is_report:
                    report(*outcome)
                    outcome = None
        except (EOFError, OSError):
            pass
        except Exception as error:  # a custom network may not be unpickled
            outcome = error
        process.join()
        with self._forking:
            pipe.close()
            del self._workers[future]
        if outcome is None:
            outcome = UnskewError(
                f"a worker process ended unexpectedly (exit code {process.exitcode}); "
                "if memory ran out, use fewer jobs"
            )
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def _serve(fn: Callable[..., Any], pipe: Pipe, inherited: Sequence[Pipe]) -> None:
    """Call a function in a worker process, and send reports, result or error through the pipe.

    Ctrl-C is handled by the parent process, which then asks this one to stop, once, so that nothing
    interrupts the checkpoint written on the way out.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for end in inherited:
        end.close()
    torch.set_num_threads(1)
    with suppress(KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        # The parent asked to stop, or has ended: the checkpoint is already written.
        signal.signal(signal.SIGTERM, _stop)
        try:
            message = cloudpickle.dumps((fn(lambda *values: pipe.send((values, True))), False))
        except Exception as error:
            message = pickle.dumps((_sendable(error), False))
        pipe.send_bytes(message)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the process is about to end by itself


def _stop(number: int, frame: object) -> None:
    del number, frame
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _sendable(error: Exception) -> Exception:
    """Return an error that can be pickled; a bug carries its traceback as a note."""
    if not isinstance(error, UnskewError) or error.__cause__ is not None:
        add_traceback_note(error)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
