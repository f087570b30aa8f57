"""Running a study: all its runs in one progress display, cached by content, one per core."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from unskew.data.catalogue import CATALOGUE
from unskew.data.federation import Federation
from unskew.data.sources import find
from unskew.engine.progress import show_progress_of_many
from unskew.errors import UnskewError
from unskew.experiments.cluster.executor import open_cluster
from unskew.experiments.cluster.places import On, find_place
from unskew.experiments.comparison import run_folder
from unskew.experiments.processes import can_run_in_parallel, cores
from unskew.experiments.scheduler import RunRequest, RunScheduler
from unskew.experiments.studies.case_data import open_case_data
from unskew.experiments.studies.measure_registry import measure_of
from unskew.experiments.studies.measures import worst_clients
from unskew.experiments.studies.study import Case, Study, StudyData
from unskew.methods import make_method
from unskew.models import MODELS
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.runs.stage_cache import stage_cache_in
from unskew.utils.specs import build, lookup

_WORST = 3
"""The number of clients that get twice their samples where a case follows another."""


@dataclass(frozen=True)
class StudyRuns:
    """The runs of a study, by case."""

    study: Study
    runs: dict[str, Runs] = field(default_factory=dict)

    def of(self, case: str, label: str) -> list[Run]:
        """Return the runs of a method in a case; empty if it was not run there."""
        spec = self.study.case(case).methods.get(label)
        if spec is None or case not in self.runs:
            return []
        return self.runs[case].of(make_method(spec).spec)

    def labelled(self, case: str) -> Runs:
        """Return the runs of a case named by the study's labels instead of spec strings."""
        labels = self.study.case(case).methods
        return Runs(replace(run, method=label) for label in labels for run in self.of(case, label))


def run_study_cases(
    study: Study,
    cache: Path,
    *,
    resume: bool = True,
    jobs: int | None = None,
    on: On = None,
    progress: bool | None = None,
) -> StudyRuns:
    """Run every method of every case with every seed; runs that are in the cache are read.

    Cases that follow others are run after them. Cases whose data is missing are skipped.
    """
    check_study(study)
    study_runs = StudyRuns(study)
    runnable = [case for case in study.cases if case.missing is None and case.methods]
    place = find_place(on, jobs, [case.train.changed({"workers": 1}) for case in runnable])
    rounds = max((case.train.rounds for case in runnable), default=1)
    count = study.seeds * sum(len(case.methods) for case in runnable)
    parallelism = min(count, jobs or cores()) if can_run_in_parallel(None) else 1
    with (
        show_progress_of_many(progress, count, rounds) as display,
        stage_cache_in(cache) as stage_cache,
        open_cluster(place, cache) as cluster,
    ):
        parallel = parallelism if cluster is None else jobs
        scheduler = RunScheduler(None, resume, parallel, display, stage_cache, cluster)
        for followers in (False, True):
            cases = [case for case in runnable if (case.follows is not None) == followers]
            planned = [
                _StudyRun(case, label, seed)
                for case in cases
                for seed in range(study.seeds)
                for label in case.methods
            ]
            requests = _StudyRequests(
                cache, study_runs, one_core=parallelism > 1 or cluster is not None
            )
            runs = scheduler.run([requests.of(study_run) for study_run in planned])
            for case in cases:
                study_runs.runs[case.name] = _by_method(case, planned, runs)
    return study_runs


def check_study(study: Study) -> None:
    """Raise, before anything is trained, if a name is not known or data is missing."""
    for name in study.file.measures:
        measure_of(name)
    for case in study.cases:
        _check_case(study.name, case)
    sources = {case.data.name for case in study.cases if case.missing is None}
    missing = sorted(name for name in sources if CATALOGUE[name].file and find(name) is None)
    if missing:
        commands = ", ".join(f"`unskew data fetch {name}`" for name in missing)
        raise UnskewError(
            f"data: {study.name} at scale {study.scale} needs {', '.join(missing)}, which is not "
            f"installed; {commands} downloads it or explains how, or point UNSKEW_DATA to a folder "
            "that has it, or use --scale smoke"
        )


def _check_case(study: str, case: Case) -> None:
    try:
        if case.missing is None:
            lookup(CATALOGUE, case.data.name, "data")
        if case.model is not None:
            build(MODELS, case.model, "model")
        specs = [make_method(spec).spec for spec in case.methods.values()]
    except UnskewError as error:
        raise UnskewError(f"{study}: case {case.name!r}: {error}") from None
    if len(set(specs)) < len(specs):
        raise UnskewError(
            f"{study}: case {case.name!r}: methods must be distinct (got {', '.join(specs)})"
        )


def content_key(case: Case, skew: str | None) -> str:
    """Return a short hash of everything that affects a run's results, except seed and method.

    Settings at their defaults are not part of it, so that a new setting does not invalidate the
    cached runs.
    """
    settings = {*case.train.training_identity(), "rounds"}
    content = {
        "data": case.data.model_dump(exclude_defaults=True) | {"skew": skew or case.data.skew},
        "model": case.model,
        "train": case.train.model_dump(exclude_defaults=True, include=settings),
    }
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class _StudyRun:
    """One run of a study: a case, the label of a method, and a seed."""

    case: Case
    label: str
    seed: int

    def __str__(self) -> str:
        return f"{self.case.name}: {self.label}, seed {self.seed}"


def _by_method(case: Case, planned: Sequence[_StudyRun], runs: Sequence[Run]) -> Runs:
    """Return the runs of a case, ordered by method."""
    labels = list(case.methods)
    of_case = [pair for pair in zip(planned, runs, strict=True) if pair[0].case is case]
    return Runs(run for _, run in sorted(of_case, key=lambda pair: labels.index(pair[0].label)))


@dataclass(eq=False)
class _StudyRequests:
    """Creates the run requests of a study; consecutive runs with the same data share it."""

    cache: Path
    study_runs: StudyRuns
    one_core: bool
    last: tuple[tuple[StudyData, str | None, int], Federation] | None = None

    def of(self, study_run: _StudyRun) -> RunRequest:
        """Return the request for one run."""
        case, method = study_run.case, make_method(study_run.case.methods[study_run.label])
        skew = self._skew(study_run)
        changes = {"seed": study_run.seed}
        if self.one_core:
            changes["workers"] = 1  # one core per run; more processes give the same bits
        return RunRequest(
            label=str(study_run),
            method=method,
            data=lambda: self._federation(case.data, skew, study_run.seed),
            settings=case.train.changed(changes),
            folder=run_folder(self.cache / content_key(case, skew), method.spec, study_run.seed),
            model=case.model,
        )

    def _skew(self, study_run: _StudyRun) -> str | None:
        """Return the skew of a case that follows another: the worst clients get double samples."""
        if study_run.case.follows is None:
            return None
        before = self.study_runs.runs[study_run.case.follows]
        run = next(run for run in before if run.seed == study_run.seed)
        return f"{study_run.case.data.skew},double={'/'.join(map(str, worst_clients(run, _WORST)))}"

    def _federation(self, data: StudyData, skew: str | None, seed: int) -> Federation:
        key = (data, skew, seed)
        if self.last is None or self.last[0] != key:
            self.last = key, open_case_data(data, seed, skew)
        return self.last[1]
