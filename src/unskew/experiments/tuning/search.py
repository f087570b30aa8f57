"""The search: first the learning rates of all methods, then trials around each best one."""

from collections.abc import Callable, Sequence
from pathlib import Path

from unskew.composition.method import Method
from unskew.data.federation import Federation
from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.experiments.scheduler import RunRequest, folder_name
from unskew.experiments.tuning.choice import Choice, TrialResult, best_of, level_of
from unskew.experiments.tuning.plan import SHARE, SearchPlan
from unskew.experiments.tuning.split import validation_split
from unskew.experiments.tuning.trials import Trial, first_trials, further_trials, grid_options
from unskew.methods import with_options
from unskew.runs.read import TUNING
from unskew.runs.run import Run

Execute = Callable[[Sequence[RunRequest]], list[Run]]

_EVALUATIONS = 10
"""The minimum number of evaluations per trial; those of the second half count."""


def search(
    methods: Sequence[Method],
    plan: SearchPlan,
    federation: Federation,
    execute: Execute,
    settings: Settings,
    out: Path | None,
) -> list[Choice]:
    """Try every method's settings on the validation part and return the best for each method.

    With ``out`` every trial is a run in a folder below it, so that no trial is trained twice.
    """
    check_disjoint(methods)
    split = validation_split(federation, SHARE, plan.seed)
    runner = _TrialRunner(plan, split, execute, settings, out)
    first = runner.run([first_trials(method, plan.lrs) for method in methods], skip=False)
    further = runner.run(
        [
            further_trials(method, best_of(results).trial.lr, plan.lrs, plan.remaining, plan.seed)
            for method, results in zip(methods, first, strict=True)
        ],
        skip=True,
    )
    return [
        Choice(method.spec, level_of(method), plan, early + late)
        for method, early, late in zip(methods, first, further, strict=True)
    ]


def check_disjoint(methods: Sequence[Method]) -> None:
    """Raise if the searches of two methods could choose the same spec."""
    searched_by: dict[str, str] = {}
    for method in methods:
        requested = method.spec
        candidates = [with_options(method, options) for options in grid_options(method)]
        for name in {requested, *(each.spec for each in candidates)}:
            if name in searched_by:
                raise UnskewError(
                    f"tune: {searched_by[name]} and {requested} may both become {name}; "
                    "remove one of them"
                )
            searched_by[name] = requested


class _TrialRunner:
    """Runs trials on the validation split."""

    def __init__(
        self,
        plan: SearchPlan,
        federation: Federation,
        execute: Execute,
        settings: Settings,
        out: Path | None,
    ) -> None:
        self._federation, self._execute = federation, execute
        self._settings = settings.changed(
            {
                "rounds": plan.rounds,
                "evaluate_every": max(1, plan.rounds // _EVALUATIONS),
                "seed": plan.seed,
            }
        )
        self._out = None if out is None else out / TUNING / f"{plan.rounds}-rounds"

    def run(self, trials: Sequence[Sequence[Trial]], *, skip: bool) -> list[list[TrialResult]]:
        """Run the trials of all methods and return the results of each method.

        With ``skip`` a published value that the network does not support is skipped; without it,
        a method that cannot be trained as requested is an error.
        """
        requests = [self._request(trial, skip) for group in trials for trial in group]
        runs = iter(self._execute(requests))
        return [
            [TrialResult.of(trial, next(runs), level_of(trial.method)) for trial in group]
            for group in trials
        ]

    def _request(self, trial: Trial, skip: bool) -> RunRequest:
        folder = None
        if self._out is not None:
            folder = self._out / folder_name(trial.name) / f"lr={trial.lr:g}"
        return RunRequest(
            label=f"{trial.name}, lr {trial.lr:g}, tuning",
            method=trial.method,
            data=lambda: self._federation,
            settings=self._settings.changed({"lr": trial.lr}),
            folder=folder,
            skip_unsupported=skip,
        )
