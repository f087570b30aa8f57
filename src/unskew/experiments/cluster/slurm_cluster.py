"""Runs as jobs of Slurm, which submitit submits as arrays.

submitit passes a function to a job in a file of the command's folder, which only its user can read
and write. What comes back are run folders and JSON, so this process unpickles nothing.
"""

import json
import math
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import DelayedSubmission

from unskew.errors import UnskewError
from unskew.experiments.cluster.call import CallResult
from unskew.experiments.cluster.executor import OpenWorkers
from unskew.experiments.cluster.shared_folder import SharedFolder
from unskew.runs.atomic import write_json
from unskew.utils.wording import plural, seconds_of

_MAX_JOBS = 100
"""By default, calls are packed so that an array has at most this many jobs."""

_TIME = "1h"
"""The default time limit of a job; a job that reaches it is requeued and resumes its run."""

_ANY_NUMBER = 1000
"""How often a job is requeued, and how many jobs of an array run at the same time: no limit."""

_RETRIES = 3
"""How often a job that ended before its runs were done is submitted again."""

_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_BETWEEN_QUEUES = 5.0
"""How often outcomes are looked for, and how often Slurm is asked for its queue."""

_SHUTDOWN_SECONDS = 10
"""How long a command waits for Slurm to accept what it has just submitted."""

Call = tuple[Callable[..., CallResult], tuple[Any, ...]]
_Waiting = tuple[Future[CallResult], Path, Call]
"""A call that is to be submitted, its future, and where its outcome will be."""


def open_workers(options: str, jobs: int | None, cores: int, gpus: int) -> OpenWorkers:
    """Return what submits jobs; ``options`` are those of sbatch, and ``pack``."""
    del gpus  # partitions differ in how they are asked for: gres=gpu:1, gpus-per-task=1
    found = dict(_option(each) for each in filter(None, map(str.strip, options.split(","))))
    minutes = math.ceil(_seconds(found.pop("time", _TIME)) / 60)
    pack = _whole_number(found.pop("pack", None))
    parameters = {
        "time": minutes,
        "signal_delay_s": min(90, 15 * minutes),
        "cpus_per_task": cores,
        # Some versions of srun do not take it from the job.
        "srun_args": [f"--cpus-per-task={cores}"],
        "array_parallelism": jobs or _ANY_NUMBER,
        "job_name": "unskew",
        "additional_parameters": {key.replace("_", "-"): value for key, value in found.items()},
    }

    def connect(shared: SharedFolder) -> Executor:
        return _SlurmExecutor(shared.command, parameters, pack, jobs)

    return connect


def _option(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UnskewError(
            f"on: write the options of slurm as key=value, such as slurm:partition=cpu,time=2h "
            f"(got {text!r})"
        )
    return key.strip(), value.strip()


def _seconds(text: str) -> float:
    """Parse a time limit: minutes, 2h, or Slurm's own 1:30:00."""
    try:
        if ":" in text:
            *_, hours, minutes, seconds = [0.0, *map(float, text.split(":"))]
            return 3600 * hours + 60 * minutes + seconds
        return 60 * float(text) if text.isdigit() else float(seconds_of(text))
    except (ValueError, TypeError, UnskewError):
        raise UnskewError(f"on: time: write minutes, 2h, or 1:30:00 (got {text!r})") from None


def _whole_number(text: str | None) -> int | None:
    if text is not None and (not text.isdigit() or text == "0"):
        raise UnskewError(f"on: pack is the number of runs per job, 1 or more (got {text!r})")
    return None if text is None else int(text)


class _Pack:
    """Calls that one job makes one after the other; submitit requeues it when its time is up."""

    def __init__(self, calls: Sequence[tuple[Path, Call]]) -> None:
        self._calls = calls

    def __call__(self) -> None:
        for path, (fn, args) in self._calls:
            if path.parent.is_dir() and not path.exists():
                outcome = fn(*args)
                with suppress(OSError):  # the command has ended, and with it the folder
                    write_json(path, outcome)

    def checkpoint(self) -> DelayedSubmission:
        """Return what a requeued job does: the calls that have no outcome yet."""
        return DelayedSubmission(self)


@dataclass(eq=False)
class _Job:
    """A submitted pack: its job, its futures, and how often it was submitted."""

    job: Any
    calls: dict[Future[CallResult], tuple[Path, Call]]
    attempts: int = 1
    missed: int = 0
    """How often in a row the job was not in the queue."""

    def collect(self) -> None:
        """Resolve the futures of calls that have an outcome."""
        for future, (path, _) in list(self.calls.items()):
            with suppress(OSError, ValueError):  # not there, or not complete, on this machine
                outcome = json.loads(path.read_bytes())
                del self.calls[future]
                future.set_result(outcome)

    def fail(self, reason: str) -> None:
        for future in self.calls:
            if not future.done():
                future.set_exception(UnskewError(reason))
        self.calls.clear()

    def last_words(self) -> str:
        """Return the last line of the job's log."""
        with suppress(OSError):
            lines = Path(self.job.paths.stderr).read_text(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return "it has no log: is out on storage that all machines share?"


class _SlurmExecutor(Executor):
    """Submits the calls that arrive before a :meth:`flush` as one array of jobs."""

    limits_jobs = True

    def __init__(
        self, folder: Path, parameters: dict[str, Any], pack: int | None, jobs: int | None
    ) -> None:
        try:
            self._submitit = submitit.SlurmExecutor(folder / "slurm", max_num_timeout=_ANY_NUMBER)
        except RuntimeError:
            raise UnskewError("on: this machine has no Slurm (srun is not found)") from None
        self._submitit.update_parameters(**parameters)
        self._outcomes, self._pack, self._parallel = folder / "outcomes", pack, jobs or 1
        self._outcomes.mkdir()
        self._lock = threading.Lock()
        """For what follows: calls arrive in one thread, and are submitted in another."""
        self._waiting: list[_Waiting] = []
        self._arrays: list[list[_Waiting]] = []
        self._number, self._end = 0, ""
        self._last_queue = 0.0
        self._jobs: list[_Job] = []
        self._is_left = threading.Event()
        self._worker = threading.Thread(target=self._work, daemon=True)
        self._worker.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function in a job, which is submitted by the next :meth:`flush`."""
        del kwargs
        future: Future[CallResult] = Future()
        with self._lock:
            if self._end:
                raise UnskewError(self._end)
            self._number += 1
            self._waiting.append((future, self._outcomes / f"{self._number}.json", (fn, args)))
        return future

    def flush(self) -> None:
        """Submit what was called so far, because nothing follows for now."""
        with self._lock:
            if self._waiting:
                self._arrays.append(self._waiting)
                self._waiting = []

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel the jobs that are not done."""
        del wait, cancel_futures
        with self._lock:
            self._end = self._end or "on: the command has left Slurm"
        self._is_left.set()
        self._worker.join(_SHUTDOWN_SECONDS)  # it may be submitting jobs
        ids = [str(job.job.job_id) for job in self._jobs if job.calls]
        if ids:
            subprocess.run(["scancel", *ids], check=False, capture_output=True)

    def _work(self) -> None:
        try:
            while not self._is_left.wait(_SECONDS_BETWEEN_LOOKS):
                self._look()
        except Exception as error:  # nobody else waits for this thread
            with self._lock:
                self._end = f"on: Slurm cannot be asked: {type(error).__name__}: {error}"
                waiting = [each for calls in (*self._arrays, self._waiting) for each in calls]
            for job in (*self._jobs, _Job(None, {f: (path, call) for f, path, call in waiting})):
                job.fail(self._end)

    def _look(self) -> None:
        """Submit what is waiting, collect outcomes, and repeat what was lost."""
        while self._arrays:
            self._submit(self._arrays[0])
            with self._lock:
                del self._arrays[0]
        for job in self._jobs:
            job.collect()
        if time.monotonic() - self._last_queue > _SECONDS_BETWEEN_QUEUES:
            self._last_queue = time.monotonic()
            self._repeat_lost_jobs()
        self._jobs = [job for job in self._jobs if job.calls]

    def _submit(self, calls: Sequence[_Waiting]) -> None:
        """Submit calls as an array of jobs."""
        size = self._pack or math.ceil(len(calls) / _MAX_JOBS)
        size = min(size, math.ceil(len(calls) / self._parallel))  # all may run at once
        packs = [calls[first : first + size] for first in range(0, len(calls), size)]
        self._start([{f: (path, call) for f, path, call in pack} for pack in packs])

    def _start(
        self, packs: Sequence[dict[Future[CallResult], tuple[Path, Call]]], attempts: int = 1
    ) -> None:
        """Submit packs as an array of jobs."""
        try:
            with self._submitit.batch():
                jobs = [self._submitit.submit(_Pack(list(pack.values()))) for pack in packs]
        except Exception as error:  # sbatch refuses, or cannot be reached
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = next((line for line in lines if "error" in line), lines[-1] if lines else "")
            for pack in packs:
                _Job(None, pack).fail(f"on: Slurm refuses the jobs: {reason}")
            return
        pairs = zip(jobs, packs, strict=True)
        self._jobs += [_Job(job, pack, attempts) for job, pack in pairs]

    def _repeat_lost_jobs(self) -> None:
        """Submit jobs again that left the queue before their runs were done."""
        queue = subprocess.run(
            ["squeue", "--me", "--noheader", "--array", "--format=%i"],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        if queue.returncode != 0:  # Slurm's controller does not answer: nothing is known
            return
        queued = set(queue.stdout.split())
        for job in list(self._jobs):
            job.missed = 0 if str(job.job.job_id) in queued else job.missed + 1
            if job.missed < 2 or not job.calls:  # a file may be seen later than the end of a job
                continue
            self._jobs.remove(job)
            if job.attempts > _RETRIES:
                left = plural(len(job.calls), "run")
                job.fail(
                    f"on: Slurm job {job.job.job_id} ended {job.attempts} times, before {left} of "
                    f"it: {job.last_words()}"
                )
            else:
                self._start([job.calls], job.attempts + 1)
