"""Runs on a cluster, whose progress is read from their folders."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from unskew.data.federation import Federation
from unskew.engine.progress import RoundCallback
from unskew.errors import UnskewError
from unskew.experiments.cluster.call import CallResult, RunCall, error_of, open_saved
from unskew.experiments.cluster.entry import execute_packed
from unskew.experiments.cluster.shared_folder import SharedFolder, shared_folder_in
from unskew.runs.checkpoint import has_checkpoint_of
from unskew.runs.file_names import METRICS
from unskew.runs.json_files import parse_line
from unskew.runs.lock import is_locked

OpenWorkers = Callable[[SharedFolder], Executor]
"""Connects to a cluster, given the folder that it shares with this command."""

_SECONDS_BETWEEN_LOOKS = 1.0
"""How often progress is read."""

_SHUTDOWN_SECONDS = 30
"""How long runs may take to finish their round and write their checkpoints."""

_PATIENCE = 60
"""How long a file that a worker wrote may take to be seen on this machine, in seconds."""


_MAX_OPEN = 16
"""How many federations are kept open; each takes a few of the process's open files."""


class Cluster(Executor):
    """Gives calls to the workers of a cluster."""

    def __init__(self, workers: Executor, shared: SharedFolder) -> None:
        self._workers, self._shared = workers, shared
        self.limits_jobs = getattr(workers, "limits_jobs", False)
        """Whether the workers themselves limit how many runs are executed at the same time."""
        self._watched: dict[Future[CallResult], _WatchedRun] = {}
        self._open = lru_cache(_MAX_OPEN)(open_saved)
        self._is_left = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def call(self, federation: Federation, **fields: Any) -> RunCall:
        """Save a federation for the workers, and return the call of a run on it."""
        data, fingerprint = self._shared.save(federation), federation.fingerprint
        command = self._shared.command
        return RunCall(command_folder=command, data=data, fingerprint=fingerprint, **fields)

    def federation(self, call: RunCall) -> Federation:
        """Return what :meth:`call` has saved: mapping it is quicker than loading it again."""
        return self._open(call.data, call.fingerprint)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a :class:`RunCall`; the argument is the callback of its rounds."""
        del kwargs
        if not isinstance(fn, RunCall):
            raise TypeError(f"a cluster executes run calls, not {fn!r}")
        log = fn.folder / METRICS
        read = log.stat().st_size if log.is_file() else 0
        future: Future[CallResult] = self._workers.submit(execute_packed, fn.packed())
        self._watched[future] = _WatchedRun(log, args[0], read)
        return future

    def flush(self) -> None:
        """Execute what was submitted, because nothing follows for now: Slurm waits to pack it."""
        flush = getattr(self._workers, "flush", None)
        if flush is not None:
            flush()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let runs write their checkpoints, and leave the cluster."""
        del wait
        if cancel_futures:
            self._shared.end_command()
            runs, deadline = list(self._watched.values()), time.monotonic() + _SHUTDOWN_SECONDS
            while any(run.is_running for run in runs) and time.monotonic() < deadline:
                time.sleep(0.1)
        # Ray ends this process if another thread frees a future while Ray disconnects.
        self._is_left.set()
        self._watcher.join(_SHUTDOWN_SECONDS)
        self._watched.clear()
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _watch(self) -> None:
        while self._shared.command.is_dir():
            for future, run in list(self._watched.items()):
                run.report_new_rounds()
                if future.done():
                    self._watched.pop(future, None)
            if self._is_left.wait(_SECONDS_BETWEEN_LOOKS):
                return


@dataclass
class _WatchedRun:
    """A run's log of metrics, and how much of it has been reported."""

    log: Path
    on_round: RoundCallback
    read: int

    @property
    def is_running(self) -> bool:
        return is_locked(self.log.parent)

    def report_new_rounds(self) -> None:
        try:
            size = self.log.stat().st_size
            self.read = min(
                self.read, size
            )  # a resumed run repeats the rounds after its checkpoint
            if size == self.read:
                return
            with self.log.open("rb") as file:
                file.seek(self.read)
                lines = file.read(size - self.read).splitlines(keepends=True)
            for line in lines:
                if line.endswith(b"\n"):
                    row = parse_line(line, self.log)
                    self.read += len(line)
                    self.on_round(int(row["round"]), row)
        except (OSError, UnskewError, KeyError):  # not there yet, or just being replaced
            return


def check_result(future: Future[CallResult], folder: Path) -> None:
    """Raise the error of a run on a worker, or wait until its results are seen here."""
    try:
        result = future.result()
    except UnskewError:
        raise
    except Exception as error:  # whatever the cluster raises, also if it lost a worker too often
        reason = (str(error).splitlines() or [""])[0]
        raise UnskewError(f"on: a worker failed: {type(error).__name__}: {reason}") from error
    failure = error_of(result)
    if failure is not None:
        raise failure
    if "stopped" in result:
        raise UnskewError(f"{folder}: the run was stopped; the same command resumes it")
    deadline = time.monotonic() + _PATIENCE
    while not has_checkpoint_of(folder, tuple(result["end"])):
        if time.monotonic() > deadline:
            raise UnskewError(
                f"out: a worker has finished {folder}, but it is not there on this machine; "
                "choose a folder on storage that all machines share"
            )
        time.sleep(0.1)


@contextmanager
def open_cluster(open_workers: OpenWorkers | None, out: Path | None) -> Iterator[Cluster | None]:
    """Connect to a cluster for one command; without one, yield None."""
    if open_workers is None:
        yield None
        return
    if out is None:
        raise UnskewError(
            "on: a cluster needs out (--out), a folder on storage that all its machines share"
        )
    out.mkdir(parents=True, exist_ok=True)
    with shared_folder_in(out) as shared:
        cluster = Cluster(open_workers(shared), shared)
        try:
            yield cluster
        except BaseException:
            cluster.shutdown(cancel_futures=True)
            raise
        cluster.shutdown()
