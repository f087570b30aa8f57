"""The search itself: all methods try their rates, then each what its best rate leads to."""

from collections.abc import Callable, Sequence
from pathlib import Path

from unskew.data.federation import Federation
from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.experiments.scheduler import RunRequest, folder_name
from unskew.experiments.tuning.choice import Choice, Tried, best_of, level_of
from unskew.experiments.tuning.plan import SHARE, Plan
from unskew.experiments.tuning.split import validation_split
from unskew.experiments.tuning.trials import Trial, first_trials, further_trials, settings_of_grid
from unskew.methods import name_of, with_options
from unskew.methods.common.base import Method
from unskew.runs.read import TUNING
from unskew.runs.run import Run

Execute = Callable[[Sequence[RunRequest]], list[Run]]

_EVALUATIONS = 10
"""How often a trial is measured, at least; those of the second half count."""


def search(
    methods: Sequence[Method],
    plan: Plan,
    federation: Federation,
    execute: Execute,
    settings: Settings,
    out: Path | None,
) -> list[Choice]:
    """Try every method's settings on a part of the training samples and choose the best.

    With ``out`` every trial is a run in a folder below it, so that none is played twice.
    """
    check_apart(methods)
    parted = validation_split(federation, SHARE, plan.seed)
    trials = _TrialRunner(plan, parted, execute, settings, out)
    first = trials.try_all([first_trials(method, plan.rates) for method in methods], first=True)
    more = trials.try_all(
        [
            further_trials(method, best_of(tried).trial.lr, plan.rates, plan.further, plan.seed)
            for method, tried in zip(methods, first, strict=True)
        ],
        first=False,
    )
    return [
        Choice(name_of(method), level_of(method), plan, early + late)
        for method, early, late in zip(methods, first, more, strict=True)
    ]


def check_apart(methods: Sequence[Method]) -> None:
    """Refuse methods of which one's search could choose what is another's."""
    reached: dict[str, str] = {}
    for method in methods:
        asked = name_of(method)
        others = [with_options(method, values) for values in settings_of_grid(method)]
        for name in {asked, *map(name_of, others)}:
            if name in reached:
                raise UnskewError(
                    f"tune: {reached[name]} and {asked} may both become {name}; leave one away"
                )
            reached[name] = asked


class _TrialRunner:
    """Where trials are played."""

    def __init__(
        self,
        plan: Plan,
        federation: Federation,
        execute: Execute,
        settings: Settings,
        out: Path | None,
    ) -> None:
        self._federation, self._execute = federation, execute
        rounds = plan.rounds
        self._settings = settings.changed(
            {
                "rounds": rounds,
                "evaluate_every": max(1, rounds // _EVALUATIONS),
                "seed": plan.seed,
            }
        )
        self._out = None if out is None else out / TUNING / f"{rounds}-rounds"

    def try_all(self, trials: Sequence[Sequence[Trial]], *, first: bool) -> list[list[Tried]]:
        """Play the trials of all methods and return what each method's were worth.

        A published value that does not suit the network is passed over; a method that cannot be
        trained as it was spelled is an error.
        """
        requests = [self._request(trial, may_refuse=not first) for each in trials for trial in each]
        runs = iter(self._execute(requests))
        return [
            [Tried.of(trial, next(runs), level_of(trial.method)) for trial in each]
            for each in trials
        ]

    def _request(self, trial: Trial, *, may_refuse: bool) -> RunRequest:
        folder = None
        if self._out is not None:
            folder = self._out / folder_name(trial.name) / f"lr={trial.lr:g}"
        return RunRequest(
            label=f"{trial.name}, lr {trial.lr:g}, tuning",
            method=trial.method,
            data=lambda: self._federation,
            settings=self._settings.changed({"lr": trial.lr}),
            folder=folder,
            may_refuse=may_refuse,
        )
