"""Comparing methods: the same data, network and seeds for each."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from unskew.composition.method import Method
from unskew.composition.parts import Part
from unskew.data.federation import Federation
from unskew.data.quality.check import check_before_training
from unskew.data.quality.findings import DataCheck
from unskew.data.read_once import reading_once
from unskew.engine.preparation import describe_preparation, planned_rounds
from unskew.engine.progress import ProgressDisplay, show_progress_of_many
from unskew.engine.settings import Settings
from unskew.engine.setup import TrainingSetup
from unskew.errors import FolderError, NotAFederationError, UnskewError
from unskew.experiments.cluster.executor import open_cluster
from unskew.experiments.cluster.places import On, find_place
from unskew.experiments.deciding import make_deciding_plan, run_until_decided
from unskew.experiments.scheduler import RunRequest, RunScheduler, folder_name
from unskew.experiments.termination import checkpoints_on_sigterm
from unskew.experiments.tuning.choice import Choice
from unskew.experiments.tuning.plan import make_plan
from unskew.experiments.tuning.search import search
from unskew.methods import make_method
from unskew.models.functional import Model
from unskew.runs.read import TUNING
from unskew.runs.run import FinalBy, Level, Run
from unskew.runs.runs import Runs, check_judging
from unskew.runs.stage_cache import stage_cache_in
from unskew.runs.target import check_target
from unskew.stats.formulas import FORMULAS
from unskew.stats.judging import MARGIN
from unskew.stats.metric import POOLED
from unskew.utils.specs import parse, split_list

Federations = Federation | Callable[[int], Federation]


@checkpoints_on_sigterm()
@reading_once()
def compare(
    federation: Federations,
    methods: str | Sequence[str | Part | Method],
    *,
    seeds: int | Sequence[int] = 5,
    model: Model | None = None,
    tune: bool | Mapping[str, Any] = False,
    decide: bool | Mapping[str, Any] = False,
    out: str | Path | None = None,
    resume: bool = True,
    jobs: int | None = None,
    on: On = None,
    progress: bool | None = None,
    target: float | None = None,
    final: FinalBy = "mean",
    margin: float = MARGIN,
    level: Level | None = None,
    command: str | None = None,
    settings: Settings | None = None,
    **options: Any,
) -> Runs:
    """Train every method with every seed and return the runs.

    ``federation`` is one federation for all seeds, whose clients and test samples are then the same
    for each of them, or a function that returns the federation of a seed. ``methods`` is a list, or
    one string such as ``"fedavg,fedprox:mu=0.01"``. With ``out``
    each run is written to the folder ``METHOD/seedN`` below it. If that folder exists, an
    unfinished run is resumed and a finished one is read, so adding a method or a seed trains only
    the new runs. A folder whose run used different data, settings, network or custom code is an
    error; with ``resume=False`` any existing run folder is. The report page ``report.html`` and the
    table as CSV, LaTeX and Markdown are written to ``out`` too: ``target`` is the accuracy whose
    cost they show, and ``command`` the shell command that the page names.

    ``final`` is the number by which methods are judged: the mean of the last tenth of the
    evaluations (at least five), or with ``"last"`` the last one. Differences up to ``margin``
    percentage points count as equivalent; see :meth:`unskew.Runs.verdict`. ``level`` is what is
    judged, also by ``tune``: ``"global"``, the global model on the common test; ``"local"``, the
    global model on the clients' own tests; or ``"personal"``, personal models on these. By default
    it is personal if a method has personal models, else global, or local without a common test.

    ``metrics`` are computed from all predictions of a level, besides accuracy and loss: names such
    as ``"auc"``, or functions of targets and scores. ``metric`` is the one that decides tuning,
    verdicts and the target; see ``docs/metrics.md``.

    ``jobs`` is the number of runs executed at the same time; None means one per core if a run uses
    a single core, and one otherwise. ``options`` are the settings of :func:`unskew.train` as
    keywords; ``settings`` takes them as one validated object instead.

    ``on`` is where runs are executed: None is this machine; ``"ray"``, ``"dask:tcp://HOST:PORT"``
    and ``"slurm:partition=NAME,time=2h"`` are clusters, which need ``out`` on storage that all
    machines share; an executor of ``concurrent.futures`` is used as it is. See ``docs/cluster.md``.

    With ``tune`` the learning rate and the declared options of each method are searched first, on a
    validation part of the clients' training samples, with Optuna (extra ``tune``); see
    ``docs/tuning.md``. It is True, or a mapping with the options ``lr`` (the lowest and the
    highest), ``clip`` (a list), ``budget`` (rounds of training per method), ``rounds`` and
    ``seeds`` (of a setting that may be chosen). The result is in ``run.metadata["tuning"]``.

    With ``decide``, ``seeds`` is only the first wave: seeds are added in waves until every method
    is significantly better or worse than the baseline, or equivalent to it. Methods with an answer
    are not trained further. ``decide`` is True, or a mapping with the options ``max_seeds`` (30),
    ``budget`` (seconds, or a text such as ``"20m"``) and ``best`` (whether the best method must be
    known too); see ``docs/verdicts.md``.
    """
    if not isinstance(federation, Federation) and not callable(federation):
        or_function = ", or a function that takes a seed and returns one"
        raise NotAFederationError(federation, or_function)
    settings = Settings.of(settings, options)
    if "seed" in settings.model_fields_set:
        raise UnskewError("seed: a comparison takes seeds instead, a number or a list")
    chosen = [make_method(method) for method in _as_list(methods)]
    names = [method.spec for method in chosen]
    if len(set(names)) != len(names):
        raise UnskewError(f"methods must be distinct (got {', '.join(names)})")
    seed_list = _seeds(seeds)
    check_judging(final, margin, level)
    if jobs is not None and jobs < 1:
        raise UnskewError(f"jobs must be at least 1 (got {jobs})")
    tuning, started = make_plan(tune, settings, seed_list, level), time.monotonic()
    deciding, place = make_deciding_plan(decide, seeds), find_place(on, jobs, [settings])
    federations, folder = _FederationCache(federation), None if out is None else Path(out)
    _check_target(target, settings, federations, seed_list[0])
    if folder is not None:
        from unskew.report.page import prepare_comparison_folder  # noqa: PLC0415 (imports jinja2)

        prepare_comparison_folder(folder)
    # Errors in the data are reported before anything starts.
    _check_level(level, federations.of(seed_list[0]))
    total = len(seed_list) * sum(planned_rounds(m.stages(), settings.rounds) for m in chosen)
    if tuning is not None:
        total += len(chosen) * tuning.budget
    runs_in_all = len(chosen) * len(seed_list)
    with (
        show_progress_of_many(
            progress, runs_in_all, settings.rounds, total_rounds=total, lines=True
        ) as display,
        stage_cache_in(folder) as stage_cache,
        open_cluster(place, folder) as cluster,
    ):
        scheduler = RunScheduler(model, resume, jobs, display, stage_cache, cluster)
        if progress is not False:
            _announce_preparation(chosen, federations, model, settings, seed_list[0], display)
        notes = {"fixed_split": True} if federations.is_fixed else {}
        entries = [
            _Entry(method, name, notes=notes) for method, name in zip(chosen, names, strict=True)
        ]
        if tuning is not None:
            execute = _trial_execution(scheduler, folder)
            choices = search(chosen, tuning, federations.of, execute, settings, folder)
            entries = [_Entry.of(choice, notes) for choice in choices]
        rows = _Rows(entries, federations, settings, folder)
        if deciding is None:
            found = scheduler.run(rows.requests(rows.specs, seed_list))
            runs = rows.collect(found, final=final, margin=margin, level=level)
        else:

            def train(specs: Sequence[str], wave: Sequence[int]) -> list[Run]:
                requests = rows.requests(specs, wave)
                if wave[0] >= len(seed_list):  # the display expects only the first wave
                    display.expect(len(requests), sum(request.rounds for request in requests))
                return scheduler.run(requests)

            runs = run_until_decided(
                rows.specs,
                deciding,
                train,
                partial(
                    rows.collect, final=final, margin=margin, level=level, waves=deciding.waves
                ),
                display,
                started,
            )
    if folder is not None:
        from unskew.report.page import write_comparison  # noqa: PLC0415 (imports jinja2)

        write_comparison(folder, runs, target=target, command=command)
    return runs


def _trial_execution(
    scheduler: RunScheduler, out: Path | None
) -> Callable[[Sequence[RunRequest]], list[Run]]:
    """Return what executes the trials of a search, which resume to train further."""
    if not scheduler.resume and out is not None and (out / TUNING).exists():
        raise FolderError(
            f"{out / TUNING} holds the trials of an earlier search; resume, or use another folder"
        )
    resuming = replace(scheduler, resume=True)

    def execute(requests: Sequence[RunRequest]) -> list[Run]:
        scheduler.display.expect(len(requests), 0)  # their rounds are those of the search's budget
        return resuming.run(requests)

    return execute


def run_folder(out: Path, method: str, seed: int) -> Path:
    """Return the folder of one run of a comparison."""
    return out / folder_name(method) / f"seed{seed}"


def _announce_preparation(
    methods: Sequence[Method],
    federations: "_FederationCache",
    model: Model | None,
    settings: Settings,
    seed: int,
    display: ProgressDisplay,
) -> None:
    """Show what the preparatory stages of methods will cost, before anything is trained."""
    for method in methods:
        if len(method.stages()) < 2:
            continue
        # A method that cannot be trained is reported when its run starts.
        with suppress(UnskewError):
            changed = settings.changed({"seed": seed})
            setup = TrainingSetup.of(federations.of(seed), method, model, changed)
            text = describe_preparation(setup)
            if text is not None:
                display.say(text)


def _check_target(
    target: float | None, settings: Settings, federations: "_FederationCache", seed: int
) -> None:
    """Raise before training if the metric that is judged cannot have the target's value."""
    if settings.metric is None or settings.metric == "accuracy":
        if target is None or 0 <= target <= 1 or not federations.of(seed).is_regression:
            check_target(target)
    elif isinstance(settings.metric, str):
        name = parse(settings.metric.removeprefix(POOLED))[0]
        if name in FORMULAS and FORMULAS[name].is_share:
            check_target(target, name)


def _check_level(level: Level | None, federation: Federation) -> None:
    """Raise before training if nothing can be measured at the level that is judged."""
    if level == "global" and not federation.common.samples:
        raise UnskewError(f"level: {federation.name} has no common test; use local or personal")
    if level in ("local", "personal") and not federation.test.samples:
        raise UnskewError(
            f"level: no client of {federation.name} has test samples; hold some out, for example "
            "with --holdout 0.2, or use global"
        )


class _FederationCache:
    """Returns the checked federation of a seed, and keeps the last one it created.

    A warning about the data is shown for the first seed that has it.
    """

    def __init__(self, federation: Federations) -> None:
        self._federation = federation
        self._last: tuple[int, Federation, DataCheck] | None = None
        self._shown: set[str] = set()

    @property
    def is_fixed(self) -> bool:
        """Whether all seeds have the same federation."""
        return isinstance(self._federation, Federation)

    def of(self, seed: int) -> Federation:
        return self._loaded(seed)[0]

    def notes(self, seed: int) -> Mapping[str, Any]:
        """Return what the runs of a seed record about their data."""
        return self._loaded(seed)[1].to_notes()

    def _loaded(self, seed: int) -> tuple[Federation, DataCheck]:
        given = self._federation
        fixed = isinstance(given, Federation)
        if self._last is None or not (fixed or self._last[0] == seed):
            federation = given if isinstance(given, Federation) else given(seed)
            found = check_before_training(federation, self._shown, stacklevel=5)
            self._shown.update(finding.subject for finding in found)
            self._last = seed, federation, found
        return self._last[1:]


@dataclass(frozen=True, eq=False)
class _Entry:
    """A row of the comparison: a method, its spec as requested, and the settings it changes."""

    method: Method
    requested: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(choice: Choice, notes: Mapping[str, Any]) -> "_Entry":
        trial = choice.chosen.trial
        all_notes = {**notes, "tuning": choice.to_dict()}
        clip = {} if trial.clip is None else {"clip": trial.clip}
        return _Entry(trial.method, choice.requested, {"lr": trial.lr, **clip}, all_notes)

    def request(
        self, federations: _FederationCache, seed: int, settings: Settings, out: Path | None
    ) -> RunRequest:
        return RunRequest(
            label=f"{self.method.spec}, seed {seed}",
            method=self.method,
            data=lambda: federations.of(seed),
            settings=settings.changed({**self.settings, "seed": seed}),
            folder=None if out is None else run_folder(out, self.requested, seed),
            notes=self.notes,
            data_notes=lambda: federations.notes(seed),
        )


@dataclass(frozen=True, eq=False)
class _Rows:
    """All rows of the comparison; they are named by the specs of their methods."""

    entries: Sequence[_Entry]
    federations: _FederationCache
    settings: Settings
    out: Path | None

    @property
    def specs(self) -> list[str]:
        return [entry.method.spec for entry in self.entries]

    def requests(self, specs: Sequence[str], seeds: Sequence[int]) -> list[RunRequest]:
        """Return the requests of some rows, seed by seed."""
        return [
            entry.request(self.federations, seed, self.settings, self.out)
            for seed in seeds
            for entry in self.entries
            if entry.method.spec in specs
        ]

    def collect(self, runs: Sequence[Run], **judging: Any) -> Runs:
        """Return the runs of one row after the other."""
        return Runs(sorted(runs, key=lambda run: self.specs.index(run.method)), **judging)


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    found = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not found or len(set(found)) < len(found):
        raise UnskewError(f"seeds must be at least one, all distinct (got {seeds})")
    return found


def _as_list(methods: str | Sequence[str | Part | Method]) -> Sequence[str | Part | Method]:
    specs = split_list(methods) if isinstance(methods, str) else methods
    if not specs:
        raise UnskewError("methods: name at least one, for instance fedavg")
    return specs
