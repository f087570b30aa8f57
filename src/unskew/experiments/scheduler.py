"""The scheduler: executes runs, several at the same time where that is possible and useful."""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from torch import nn

from unskew.composition.hook_calls import HookFailed
from unskew.composition.method import Method
from unskew.data.federation import Federation
from unskew.engine.custom_code import custom_code
from unskew.engine.hook_checks import ServerFailed
from unskew.engine.initial_network import NetworkCache
from unskew.engine.placement import is_accelerator
from unskew.engine.preparation import planned_rounds
from unskew.engine.progress import ProgressDisplay, RoundCallback
from unskew.engine.round_loop import run_training
from unskew.engine.runners import choose_device
from unskew.engine.settings import Settings
from unskew.engine.setup import TrainingSetup
from unskew.engine.stage import rounds_of
from unskew.errors import FolderError, UnskewError
from unskew.experiments.cluster.call import CallResult, RunCall
from unskew.experiments.cluster.executor import Cluster, check_result
from unskew.experiments.processes import ForkedProcesses, can_run_in_parallel, cores
from unskew.models.functional import Model
from unskew.runs.checkpoint import has_checkpoint_of
from unskew.runs.folder import reject_existing_run
from unskew.runs.run import Run
from unskew.utils.path_names import path_name


@dataclass(frozen=True, eq=False)
class RunRequest:
    """A run to execute; its data is loaded when the run starts."""

    label: str
    method: Method
    data: Callable[[], Federation]
    settings: Settings
    folder: Path | None = None
    model: str | None = None
    """The run's network, if it differs from the one the scheduler uses for all runs."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    data_notes: Callable[[], Mapping[str, Any]] = dict
    """Returns further notes, about the data, once it is loaded."""
    skip_unsupported: bool = False
    """Whether a method that does not support the network is skipped instead of raising.

    The run then holds the reason in ``metadata["skipped"]``.
    """

    def all_notes(self) -> dict[str, Any]:
        """Return what the run records besides its setup."""
        return {**self.notes, **self.data_notes()}

    @property
    def rounds(self) -> int:
        """The rounds of all stages of the run."""
        return planned_rounds(self.method.stages(), self.settings.rounds)


@dataclass(frozen=True, eq=False)
class Job:
    """A run that is to be executed in this process or by an executor."""

    label: str
    prepare: Callable[[], Callable[..., Any]]
    """Loads the run's data, in this process, when it is its turn; returns what executes it."""
    rounds: int | None = None
    """The number of rounds, where it differs from the display's."""
    in_this_process: bool = False
    """Whether the run is executed in this process: reading a run takes less time than a fork."""
    queued: bool = False
    """Whether a submitted run may wait; it is shown when it reports its first round."""
    collect: Callable[[Future[Any]], Run] = Future.result
    """Returns the run of a future that is done."""


@dataclass(frozen=True)
class RunScheduler:
    """Executes runs, ``jobs`` at a time; None means one per core if a run uses a single core."""

    model: Model | None
    resume: bool
    jobs: int | None
    display: ProgressDisplay
    stage_cache: Path | None = None
    """A folder in which the runs share their preparatory stages."""
    cluster: Cluster | None = None
    """Where runs are executed that are not finished; None means on this machine."""
    _networks: NetworkCache = field(default_factory=NetworkCache, init=False)
    """The network that the finished runs of a seed are compared with."""

    def run(self, requests: Sequence[RunRequest]) -> list[Run]:
        """Execute all requests and return their runs in the same order."""
        self._hash_code(requests)
        parallelism = self._parallelism(requests)
        in_this_process = parallelism == 1 and self.cluster is None
        finished = [_is_finished(request) for request in requests]
        rounds = [request.rounds for request, done in zip(requests, finished, strict=True) if done]
        self.display.skip(len(rounds), sum(rounds))
        jobs = [
            self._reading_job(request) if done else self._job(request, in_this_process)
            for request, done in zip(requests, finished, strict=True)
        ]
        return run_jobs(jobs, self.display, self.cluster or ForkedProcesses(), parallelism)

    def _hash_code(self, requests: Sequence[RunRequest]) -> None:
        """Hash custom code now: a file that is edited during the runs is not what they execute."""
        module = self.model if isinstance(self.model, nn.Module) else None
        builders = [self.model] if callable(self.model) and module is None else []
        for method in {id(request.method): request.method for request in requests}.values():
            custom_code(method, module, builders)

    def _reading_job(self, request: RunRequest) -> Job:
        """Return a job that compares a finished run with its request, and reads it."""
        prepare = partial(self._prepare, request, self._networks, self.resume)
        return Job(request.label, prepare, rounds=0, in_this_process=True)

    def _job(self, request: RunRequest, in_this_process: bool) -> Job:
        if self.cluster is not None:
            return self._cluster_job(self.cluster, request)
        prepare = partial(self._prepare, request, None, self.resume)
        return Job(request.label, prepare, request.rounds, in_this_process=in_this_process)

    def _prepare(
        self, request: RunRequest, networks: NetworkCache | None, resume: bool
    ) -> Callable[[RoundCallback], Run]:
        """Load a run's data, and return what executes it."""
        data, notes = request.data(), request.all_notes()

        def train(on_round: RoundCallback) -> Run:
            # Checks that method, data and settings fit together, and builds the network.
            setup = TrainingSetup.of(
                data, request.method, request.model or self.model, request.settings, networks
            )
            return execute(
                setup,
                request.folder,
                resume=resume and request.folder is not None,
                progress=on_round,
                notes=notes,
                stage_cache=self.stage_cache,
            )

        return lambda on_round: _or_skipped(request, partial(train, on_round))

    def _cluster_job(self, cluster: Cluster, request: RunRequest) -> Job:
        """Return a job for the workers of a cluster; this process reads what they write."""
        if request.settings.engine != "unskew" or request.folder is None:
            raise UnskewError(f"engine: {request.settings.engine} has its own cluster; remove on")
        if request.settings.precision == "auto":
            raise UnskewError("precision: auto depends on the machine; choose float32 or bf16")
        # What this machine would choose is the same for all workers, and for reading their runs.
        folder, settings = request.folder, request.settings
        chosen = {"workers": settings.workers or 1, "device": str(choose_device(settings))}
        request = replace(request, settings=settings.changed(chosen))
        if not self.resume:
            reject_existing_run(folder)  # a worker resumes: another one may have been lost

        @cache
        def call() -> RunCall:
            return cluster.call(
                request.data(),
                method=request.method,
                model=request.model or self.model,
                settings=request.settings,
                folder=folder.resolve(),
                notes=request.all_notes(),
                stage_cache=None if self.stage_cache is None else self.stage_cache.resolve(),
            )

        def collect(future: Future[CallResult]) -> Run:
            def read() -> Run:
                check_result(future, folder)
                sent = call()
                saved = replace(
                    request,
                    data=lambda: cluster.federation(sent),
                    notes=sent.notes,
                    data_notes=dict,
                )
                return self._prepare(saved, self._networks, resume=True)(_ignore)

            return _or_skipped(request, read)

        return Job(request.label, call, request.rounds, queued=True, collect=collect)

    def _parallelism(self, requests: Sequence[RunRequest]) -> int:
        """Return how many runs are executed at the same time."""
        if self.cluster is not None:
            limit = None if self.cluster.limits_jobs else self.jobs
            return limit or max(1, len(requests))
        limit = min(len(requests), self.jobs or cores())
        if limit < 2 or not can_run_in_parallel(self.model):
            return 1
        if any(is_accelerator(choose_device(request.settings)) for request in requests):
            return 1  # one run fills a GPU, and a process that uses one cannot be forked
        if self.jobs is None:
            first = requests[0]
            setup = TrainingSetup.of(first.data(), first.method, self.model, first.settings)
            return limit if setup.uses_one_core else 1
        return limit


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
        if job.in_this_process:
            runs[index] = job.prepare()(callbacks[index])
            display.finish(job.label)
            return
        # Futures report from other threads; this one handles what they report.
        futures[index] = executor.submit(job.prepare(), lambda *done: events.put((index, done)))
        futures[index].add_done_callback(lambda _: events.put((index, None)))

    def wait() -> None:
        if isinstance(executor, Cluster):
            executor.flush()
        index, done = events.get()
        if index not in futures:
            return  # the last rounds of a run whose result was here before them
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


def execute(
    setup: TrainingSetup,
    out: str | Path | None,
    *,
    resume: bool,
    progress: bool | RoundCallback | None,
    notes: Mapping[str, Any] | None,
    stage_cache: str | Path | None,
) -> Run:
    """Execute one run with the engine that its settings name."""
    if setup.settings.engine == "flower-ray":
        return _train_on_ray()(setup, out, resume=resume, progress=progress, notes=notes)
    return run_training(
        setup, out, resume=resume, progress=progress, notes=notes, stage_cache=stage_cache
    )


def _train_on_ray() -> Callable[..., Run]:
    try:
        from unskew.flower.ray import train_on_ray  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        if error.name not in ("flwr", "ray"):
            raise
        raise UnskewError(
            'engine: flower-ray needs Flower and Ray; pip install "unskew[flower-ray]"'
        ) from None
    return train_on_ray


def folder_name(method: str) -> str:
    """Return a method's spec string as a folder name."""
    name = re.sub(r"[^A-Za-z0-9.=+_-]+", "-", method).lstrip("-.")
    return path_name(name or method)


def _is_finished(request: RunRequest) -> bool:
    """Return whether a run's folder has its last checkpoint, so that nothing is to be trained."""
    if request.folder is None:
        return False
    stages = request.method.stages()
    end = (len(stages) - 1, rounds_of(stages[-1], request.settings))
    return has_checkpoint_of(request.folder, end)


def _or_skipped(request: RunRequest, run: Callable[[], Run]) -> Run:
    """Return a run, or the reason why it is skipped if its request allows that."""
    try:
        return run()
    except (FolderError, HookFailed, ServerFailed):
        raise
    except UnskewError as error:
        if not request.skip_unsupported:
            raise
        data = request.data()
        return Run(
            method=request.method.spec,
            network="",
            data=data.name,
            seed=request.settings.seed,
            clients=len(data),
            metadata={"skipped": str(error)},
        )


def _ignore(round_: int, metrics: Mapping[str, Any]) -> None:
    del round_, metrics
