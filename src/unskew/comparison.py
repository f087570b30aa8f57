"""Comparing methods: the same data, network and seeds for each."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import nn

from unskew.data.federation import Federation
from unskew.engine.settings import Settings
from unskew.engine.train import keeps_to_one_core, train
from unskew.errors import UnskewError
from unskew.jobs import Job, can_run_beside, cores, play_jobs
from unskew.methods.base import Method
from unskew.methods.table import make_method, name_of
from unskew.progress import Board, Watcher, watching_many
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.spelling import explain, split_list

Federations = Federation | Callable[[int], Federation]


def compare(
    federation: Federations,
    methods: str | Sequence[str | Method],
    *,
    seeds: int | Sequence[int] = 3,
    model: str | nn.Module | None = None,
    out: str | Path | None = None,
    resume: bool = True,
    jobs: int | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Runs:
    """Train every method with every seed and return the runs.

    ``federation`` is one federation for all seeds, or a function that deals one out by seed.
    ``methods`` is a list, or one text such as ``"fedavg,fedprox:mu=0.01"``. With ``out`` each run
    gets a folder ``METHOD/seedN`` below it; one that is there already is gone on with if it was
    not finished, and read if it was, so that a new method or seed plays nothing but its own runs.
    A folder whose run had other data, settings or network is refused, and so is any with
    ``resume=False``. ``jobs`` runs are played at once; None means one a core, if a run keeps to
    one. ``settings`` are those of :func:`unskew.train`.
    """
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
    plan = _Plan(
        _Deals(federation),
        [(method, seed) for seed in numbers for method in chosen],
        model,
        None if out is None else Path(out),
        resume,
        settings,
    )
    with watching_many(progress, len(plan.pairs), _checked(settings).rounds) as board:
        runs = plan.play(board, jobs)
    return Runs(sorted(runs, key=lambda run: names.index(run.method)))


def run_folder(out: Path, method: str, seed: int) -> Path:
    """Return the folder of one run of a comparison."""
    return out / re.sub(r"[^A-Za-z0-9.=+_-]+", "-", method) / f"seed{seed}"


class _Deals:
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


@dataclass(frozen=True)
class _Plan:
    """The runs of a comparison, in the order they are played."""

    deals: _Deals
    pairs: Sequence[tuple[Method, int]]
    model: str | nn.Module | None
    out: Path | None
    resume: bool
    settings: dict[str, Any]

    def play(self, board: Board, jobs: int | None) -> list[Run]:
        """Play all runs, beside each other where that is possible and worth it."""
        labels = [f"{name_of(method)}, seed {seed}" for method, seed in self.pairs]
        return play_jobs(labels, self.job, board, self._at_once(jobs))

    def job(self, place: int) -> Job:
        """Return the job of one pair of method and seed; its data is dealt out now."""
        method, seed = self.pairs[place]
        data = self.deals.of(seed)
        folder = None if self.out is None else run_folder(self.out, name_of(method), seed)

        def play(watcher: Watcher) -> Run:
            run = train(
                data,
                method,
                model=self.model,
                out=folder,
                resume=self.resume and folder is not None,
                progress=watcher,
                seed=seed,
                **self.settings,
            )
            return _as_long_as_asked(run, self.settings)

        return play

    def _at_once(self, jobs: int | None) -> int:
        most = min(len(self.pairs), cores() if jobs is None else jobs)
        if most < 2 or not can_run_beside(self.model):
            return 1
        method, seed = self.pairs[0]
        settings = _checked({**self.settings, "seed": seed})
        if jobs is None and not keeps_to_one_core(
            self.deals.of(seed), method, self.model, settings
        ):
            return 1
        return most


def _as_long_as_asked(run: Run, settings: dict[str, Any]) -> Run:
    """Refuse a run of an earlier comparison that was longer: its figures are of later rounds."""
    asked = _checked(settings).rounds
    played = max((row["round"] for row in run.metrics if row["stage"] == "task"), default=0)
    if played > asked:
        raise UnskewError(
            f"rounds: {run.folder} has {played} already (asked for {asked}); ask for {played} or "
            "more, or choose another folder"
        )
    return run


def _checked(settings: dict[str, Any]) -> Settings:
    try:
        return Settings(**settings)
    except ValidationError as error:
        raise UnskewError(f"settings: {explain(error, Settings)}") from None


def _listed(methods: str | Sequence[str | Method]) -> Sequence[str | Method]:
    listed = split_list(methods) if isinstance(methods, str) else methods
    if not listed:
        raise UnskewError("methods: name at least one, for instance fedavg")
    return listed
