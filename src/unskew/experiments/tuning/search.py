"""The searches of all methods, whose runs are executed together."""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from unskew.composition.method import Method
from unskew.data.federation import Federation
from unskew.engine.settings import Settings
from unskew.experiments.scheduler import RunRequest, folder_name
from unskew.experiments.tuning.choice import Choice, Measured, level_of
from unskew.experiments.tuning.method_search import MethodSearch, TrialRun
from unskew.experiments.tuning.plan import SHARE, SearchPlan
from unskew.experiments.tuning.sampler import check_installed
from unskew.experiments.tuning.space import check_disjoint
from unskew.experiments.tuning.validation_split import validation_split
from unskew.runs.checkpoint import rounds_done
from unskew.runs.read import TUNING
from unskew.runs.run import Run

Execute = Callable[[Sequence[RunRequest]], list[Run]]

_EVALUATIONS = 5
"""The minimum number of evaluations in the first rounds of a setting; those of the second half
count."""


def search(
    methods: Sequence[Method],
    plan: SearchPlan,
    federation: Callable[[int], Federation],
    execute: Execute,
    settings: Settings,
    out: Path | None,
) -> list[Choice]:
    """Try every method's settings on the validation part and return the best for each method.

    ``federation`` returns the federation of a seed. With ``out`` every trial is a run in a folder
    below it, so that no trial is trained twice.
    """
    check_installed()
    check_disjoint(methods)
    with TemporaryDirectory(prefix="unskew-tuning-") as folder:
        runner = _TrialRunner(plan, federation, execute, settings, out or Path(folder))
        searches = [MethodSearch(method, plan).steps() for method in methods]
        waiting = {i: next(search) for i, search in enumerate(searches)}
        choices: dict[int, Choice] = {}
        while waiting:
            for i, measured in runner.run(waiting).items():
                try:
                    waiting[i] = searches[i].send(measured)
                except StopIteration as end:
                    choices[i] = end.value
                    del waiting[i]
    return [choices[i] for i in range(len(methods))]


class _TrialRunner:
    """Runs trials on the validation splits of the seeds."""

    def __init__(
        self,
        plan: SearchPlan,
        federation: Callable[[int], Federation],
        execute: Execute,
        settings: Settings,
        out: Path,
    ) -> None:
        self._federation, self._execute, self._plan = federation, execute, plan
        every = max(1, plan.first_rounds // _EVALUATIONS)
        self._settings = settings.changed({"evaluate_every": every})
        self._splits: dict[int, Federation] = {}
        self._out = out / TUNING / f"{plan.rounds}-rounds"

    def run(self, batches: dict[int, list[TrialRun]]) -> dict[int, list[Measured]]:
        """Execute the runs of several searches together and return what they showed."""
        runs = iter(self._execute([self._request(each) for b in batches.values() for each in b]))
        return {
            i: [self._measured(next(runs), each) for each in batch] for i, batch in batches.items()
        }

    def _measured(self, run: Run, request: TrialRun) -> Measured:
        level = level_of(request.trial.method, self._plan)
        is_last = request.rounds == self._plan.rounds
        return Measured.of(run, level, request.rounds, is_last=is_last)

    def _request(self, run: TrialRun) -> RunRequest:
        trial = run.trial
        setting = trial.text.removeprefix(trial.name).removeprefix(", ")
        folder = self._out / folder_name(trial.name) / folder_name(setting) / f"seed{run.seed}"
        # In a search that is repeated, the setting may already have been trained further.
        rounds = max(run.rounds, rounds_done(folder, len(trial.method.stages()) - 1))
        return RunRequest(
            label=f"{trial.text}, seed {run.seed}, tuning",
            method=trial.method,
            data=lambda: self._split(run.seed),
            settings=self._settings.changed(
                {
                    "lr": trial.lr,
                    "clip": trial.clip or self._settings.clip,
                    "rounds": rounds,
                    "seed": run.seed,
                }
            ),
            folder=folder,
            # A proposal that the network does not support is skipped; a method that cannot be
            # trained as requested is an error.
            skip_unsupported=not run.is_requested,
        )

    def _split(self, seed: int) -> Federation:
        if seed not in self._splits:
            self._splits[seed] = validation_split(self._federation(seed), SHARE, seed)
        return self._splits[seed]
