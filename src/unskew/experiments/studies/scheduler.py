"""Playing a study: all its runs on one board, cached by content, as many at once as cores."""

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
from unskew.experiments.comparison import run_folder
from unskew.experiments.jobs import can_run_in_parallel, cores
from unskew.experiments.scheduler import RunRequest, RunScheduler
from unskew.experiments.studies.case_data import open_case_data
from unskew.experiments.studies.measure_registry import measure_of
from unskew.experiments.studies.measures import worst_clients
from unskew.experiments.studies.study import Case, Study, StudyData
from unskew.methods import make_method, name_of
from unskew.models import MODELS
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.runs.stage_cache import stage_cache_in
from unskew.utils.specs import build, lookup

_WORST = 3
"""So many clients get twice their samples where one case follows another."""


@dataclass(frozen=True)
class StudyRuns:
    """The runs of a study, by case, and which spelling each label had."""

    study: Study
    runs: dict[str, Runs] = field(default_factory=dict)

    def of(self, case: str, label: str) -> list[Run]:
        """Return a method's runs in a case, none if it was not played there."""
        spelled = self.study.case(case).methods.get(label)
        if spelled is None or case not in self.runs:
            return []
        return self.runs[case].of(name_of(make_method(spelled)))

    def labelled(self, case: str) -> Runs:
        """Return a case's runs under the labels of the study, which are shorter than spellings."""
        labels = self.study.case(case).methods
        return Runs(replace(run, method=label) for label in labels for run in self.of(case, label))


def run_study_cases(
    study: Study,
    cache: Path,
    *,
    resume: bool = True,
    jobs: int | None = None,
    progress: bool | None = None,
) -> StudyRuns:
    """Play every method of every case with every seed; runs that are in the cache are read.

    Cases that follow others come after them. Cases whose data is missing are left out.
    """
    check_study(study)
    played = StudyRuns(study)
    playable = [case for case in study.cases if case.missing is None and case.methods]
    rounds = max((case.train.rounds for case in playable), default=1)
    count = study.seeds * sum(len(case.methods) for case in playable)
    parallelism = min(count, jobs or cores()) if can_run_in_parallel(None) else 1
    with show_progress_of_many(progress, count, rounds) as board, stage_cache_in(cache) as stages:
        scheduler = RunScheduler(None, resume, parallelism, board, stages)
        for followers in (False, True):
            cases = [case for case in playable if (case.follows is not None) == followers]
            tasks = [
                _Task(case, label, seed)
                for case in cases
                for seed in range(study.seeds)
                for label in case.methods
            ]
            requests = _StudyRequests(cache, played, one_core=parallelism > 1)
            runs = scheduler.run([requests.of(task) for task in tasks])
            for case in cases:
                played.runs[case.name] = _by_method(case, tasks, runs)
    return played


def check_study(study: Study) -> None:
    """Complain, before anything is trained, about names that are not known and missing data."""
    for name in study.file.measures:
        measure_of(name)
    for case in study.cases:
        _check_case(study.name, case)
    wanted = {case.data.name for case in study.cases if case.missing is None}
    lacking = sorted(name for name in wanted if CATALOGUE[name].file and find(name) is None)
    if lacking:
        commands = ", ".join(f"`unskew data fetch {name}`" for name in lacking)
        raise UnskewError(
            f"data: {study.name} at scale {study.scale} needs {', '.join(lacking)}, which is not "
            f"on this machine; {commands} gets it or says how, or point UNSKEW_DATA to a folder "
            "that has it, or use --scale smoke"
        )


def _check_case(study: str, case: Case) -> None:
    try:
        if case.missing is None:
            lookup(CATALOGUE, case.data.name, "data")
        if case.model is not None:
            build(MODELS, case.model, "model")
        spelled = [name_of(make_method(text)) for text in case.methods.values()]
    except UnskewError as error:
        raise UnskewError(f"{study}: case {case.name!r}: {error}") from None
    if len(set(spelled)) < len(spelled):
        raise UnskewError(f"{study}: case {case.name!r}: methods: two are the same ({spelled})")


def content_key(case: Case, skew: str | None) -> str:
    """Return a short hash of everything that shapes a run's numbers, but its seed and method.

    What is as it is by default is left out: a new setting must not make old runs unknown.
    """
    shaping = {*case.train.training_identity(), "rounds"}
    content = {
        "data": case.data.model_dump(exclude_defaults=True) | {"skew": skew or case.data.skew},
        "model": case.model,
        "train": case.train.model_dump(exclude_defaults=True, include=shaping),
    }
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class _Task:
    case: Case
    label: str
    seed: int

    def __str__(self) -> str:
        return f"{self.case.name}: {self.label}, seed {self.seed}"


def _by_method(case: Case, tasks: Sequence[_Task], runs: Sequence[Run]) -> Runs:
    """Return the runs of a case, those of one method after the other's."""
    labels = list(case.methods)
    own = [pair for pair in zip(tasks, runs, strict=True) if pair[0].case is case]
    return Runs(run for _, run in sorted(own, key=lambda pair: labels.index(pair[0].label)))


@dataclass(eq=False)
class _StudyRequests:
    """Says what each run of a study needs; tasks in a row with the same data share it."""

    cache: Path
    played: StudyRuns
    one_core: bool
    last: tuple[tuple[StudyData, str | None, int], Federation] | None = None

    def of(self, task: _Task) -> RunRequest:
        """Return the request for one run."""
        case, method = task.case, make_method(task.case.methods[task.label])
        skew = self._skew(task)
        changes = {"seed": task.seed}
        if self.one_core:
            changes["workers"] = 1  # a run keeps to its core; a pool gives the same bits
        return RunRequest(
            label=str(task),
            method=method,
            data=lambda: self._federation(case.data, skew, task.seed),
            settings=case.train.changed(changes),
            folder=run_folder(self.cache / content_key(case, skew), name_of(method), task.seed),
            model=case.model,
        )

    def _skew(self, task: _Task) -> str | None:
        """Return the skew of a case that follows another: with its worst clients doubled."""
        if task.case.follows is None:
            return None
        before = self.played.runs[task.case.follows]
        run = next(run for run in before if run.seed == task.seed)
        return f"{task.case.data.skew},double={'/'.join(map(str, worst_clients(run, _WORST)))}"

    def _federation(self, data: StudyData, skew: str | None, seed: int) -> Federation:
        key = (data, skew, seed)
        if self.last is None or self.last[0] != key:
            self.last = key, open_case_data(data, seed, skew)
        return self.last[1]
