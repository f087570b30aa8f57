"""Comparing methods: the same data, network and seeds for each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unskew.data.federation import Federation
from unskew.engine.progress import show_progress_of_many
from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.experiments.scheduler import RunRequest, RunScheduler, folder_name
from unskew.experiments.tuning.choice import Choice
from unskew.experiments.tuning.plan import make_plan
from unskew.experiments.tuning.search import search
from unskew.methods import make_method, name_of
from unskew.methods.common.base import Method
from unskew.models.functional import Model
from unskew.runs.runs import Runs
from unskew.runs.stage_cache import stage_cache_in
from unskew.utils.specs import split_list

Federations = Federation | Callable[[int], Federation]


def compare(
    federation: Federations,
    methods: str | Sequence[str | Method],
    *,
    seeds: int | Sequence[int] = 3,
    model: Model | None = None,
    tune: bool | Mapping[str, Any] = False,
    out: str | Path | None = None,
    resume: bool = True,
    jobs: int | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Runs:
    """Train every method with every seed and return the runs.

    ``federation`` is one federation for all seeds, or a function that federations one out by seed.
    ``methods`` is a list, or one text such as ``"fedavg,fedprox:mu=0.01"``. With ``out`` each run
    gets a folder ``METHOD/seedN`` below it; one that is there already is gone on with if it was
    not finished, and read if it was, so that a new method or seed plays nothing but its own runs.
    A folder whose run had other data, settings, network or code of yours is refused, and so is any
    with ``resume=False``. ``jobs`` runs are played at once; None means one a core, if a run keeps
    to one. ``settings`` are those of :func:`unskew.train`.

    With ``tune`` each method's learning rate and published options are searched first, with the
    first seed, on a part of the clients' training samples; see ``docs/tuning.md``. It is True, or
    the options ``lr`` (a list), ``trials`` and ``rounds`` as a mapping. What was found is in
    ``run.facts["tuning"]``.
    """
    if not isinstance(federation, Federation) and not callable(federation):
        raise UnskewError(
            f"federation must be a Federation, or a function of the seed that makes one (got "
            f"{federation!r}); see us.load"
        )
    if "seed" in settings:
        raise UnskewError("seed: a comparison has several; give seeds, a number or a list")
    chosen = [make_method(method) for method in _listed(methods)]
    names = [name_of(method) for method in chosen]
    if len(set(names)) != len(names):
        raise UnskewError(f"methods: each may stand once (got {', '.join(names)})")
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not numbers or len(set(numbers)) < len(numbers):
        raise UnskewError(f"seeds must be at least one, each once (got {seeds})")
    if jobs is not None and jobs < 1:
        raise UnskewError(f"jobs must be at least 1 (got {jobs})")
    validated = Settings.validated(settings)
    plan = make_plan(tune, validated, numbers[0])
    federations, folder = _FederationCache(federation), None if out is None else Path(out)
    each = len(numbers) + (0 if plan is None else plan.trials)
    with (
        show_progress_of_many(progress, each * len(chosen), validated.rounds) as board,
        stage_cache_in(folder) as stages,
    ):
        scheduler = RunScheduler(model, resume, jobs, board, stages)
        entries = [_Entry(method, name) for method, name in zip(chosen, names, strict=True)]
        if plan is not None:
            found = search(
                chosen, plan, federations.of(plan.seed), scheduler.run, validated, folder
            )
            entries = [_Entry.of(choice) for choice in found]
        runs = scheduler.run(
            [
                entry.request(federations, seed, validated, folder)
                for seed in numbers
                for entry in entries
            ]
        )
    return Runs([run for place in range(len(entries)) for run in runs[place :: len(entries)]])


def run_folder(out: Path, method: str, seed: int) -> Path:
    """Return the folder of one run of a comparison."""
    return out / folder_name(method) / f"seed{seed}"


class _FederationCache:
    """Deals federations out by seed, and remembers the last one."""

    def __init__(self, federation: Federations) -> None:
        self._federation = federation
        self._last: tuple[int, Federation] | None = None

    def of(self, seed: int) -> Federation:
        if isinstance(self._federation, Federation) or not callable(self._federation):
            return self._federation
        if self._last is None or self._last[0] != seed:
            self._last = seed, self._federation(seed)
        return self._last[1]


@dataclass(frozen=True, eq=False)
class _Entry:
    """A row of the comparison: a method under the name it was asked for, and its own settings."""

    method: Method
    asked: str
    own: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(choice: Choice) -> "_Entry":
        trial = choice.chosen.trial
        notes = {"tuning": choice.facts()}
        return _Entry(trial.method, choice.asked, {"lr": trial.lr}, notes)

    def request(
        self, federations: _FederationCache, seed: int, settings: Settings, out: Path | None
    ) -> RunRequest:
        return RunRequest(
            label=f"{name_of(self.method)}, seed {seed}",
            method=self.method,
            data=lambda: federations.of(seed),
            settings=settings.changed({**self.own, "seed": seed}),
            folder=None if out is None else run_folder(out, self.asked, seed),
            notes=self.notes,
        )


def _listed(methods: str | Sequence[str | Method]) -> Sequence[str | Method]:
    listed = split_list(methods) if isinstance(methods, str) else methods
    if not listed:
        raise UnskewError("methods: name at least one, for instance fedavg")
    return listed
