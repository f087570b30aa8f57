"""Executing jobs, in this process or through an executor, with one progress display for all."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from unskew.engine.progress import ProgressDisplay, RoundCallback
from unskew.runs.run import Run

Work = Callable[[RoundCallback], Run]
"""Executes a run, and calls the callback after each round."""


@dataclass(frozen=True, eq=False)
class Job:
    """A run to execute."""

    label: str
    work: Callable[[], Callable[..., Any]]
    """Prepares the run, in this process, when it is its turn."""
    rounds: int | None = None
    """The number of rounds, where it differs from the display's."""
    here: bool = False
    """Whether the run is executed in this process: reading a run takes less time than a fork."""
    queued: bool = False
    """Whether a submitted run may wait; it is shown when it reports its first round."""
    collect: Callable[[Future[Any]], Run] = Future.result
    """Returns the run of a future that is done."""


def run_jobs(
    jobs: Sequence[Job], display: ProgressDisplay, executor: Executor, parallelism: int
) -> list[Run]:
    """Execute jobs, ``parallelism`` at a time, and return their runs in the same order.

    The first job that fails stops the others, which write a checkpoint, and its error is raised.
    """
    events = SimpleQueue[tuple[int, tuple[int, Mapping[str, Any]] | None]]()
    futures: dict[int, Future[Any]] = {}
    callbacks: dict[int, RoundCallback] = {}
    runs: dict[int, Run] = {}

    def start(index: int, job: Job) -> None:
        if not job.queued:
            callbacks[index] = display.start(job.label, job.rounds)
        if job.here:
            runs[index] = job.work()(callbacks[index])
            display.finish(job.label)
            return
        # Futures report in threads; what follows from it happens in this one.
        futures[index] = executor.submit(job.work(), lambda *done: events.put((index, done)))
        futures[index].add_done_callback(lambda _: events.put((index, None)))

    def wait() -> None:
        index, done = events.get()
        if index not in callbacks:
            callbacks[index] = display.start(jobs[index].label, jobs[index].rounds)
        if done is not None:
            callbacks[index](*done)
        else:
            runs[index] = jobs[index].collect(futures.pop(index))
            display.finish(jobs[index].label)

    try:
        for index, job in enumerate(jobs):
            while len(futures) >= parallelism:
                wait()
            start(index, job)
        while futures:
            wait()
    except BaseException:
        executor.shutdown(cancel_futures=True)
        raise
    return [runs[index] for index in range(len(jobs))]
