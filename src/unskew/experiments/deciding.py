"""Adding seeds in waves until every method is better than, worse than or equal to the baseline."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from unskew.engine.progress import ProgressDisplay
from unskew.errors import UnskewError
from unskew.runs.decision import decision_text, run_seconds
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.stats.sequential import MAX_SEEDS, plan_waves
from unskew.stats.waves import Waves
from unskew.utils.specs import validated
from unskew.utils.wording import duration, plural, seconds_of


class Deciding(BaseModel):
    """When a comparison stops adding seeds; ``budget`` is in seconds, or a text such as 20m."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    max_seeds: Annotated[int, Field(ge=2, le=1000)] = MAX_SEEDS
    budget: Annotated[float, Field(gt=0)] | None = None
    best: bool = False

    @field_validator("budget", mode="before")
    @classmethod
    def _in_seconds(cls, budget: object) -> object:
        return seconds_of(budget) if isinstance(budget, str) else budget


@dataclass(frozen=True)
class DecidingPlan:
    """The waves of a comparison that decides, and its budget in seconds."""

    waves: Waves
    budget: float | None


def make_deciding_plan(
    decide: bool | Mapping[str, Any], seeds: int | Sequence[int]
) -> DecidingPlan | None:
    """Return the plan for ``decide``: True or options of :class:`Deciding`; False gives None.

    ``seeds`` is the number of seeds of the first wave.
    """
    if decide is False:
        return None
    options = Deciding() if decide is True else validated(Deciding, decide, "decide: ")
    if not isinstance(seeds, int):
        raise UnskewError("seeds: with decide, give the number of seeds of the first wave")
    if seeds < 2:
        raise UnskewError(f"seeds: with decide, the first wave needs two or more (got {seeds})")
    sizes = plan_waves(options.max_seeds, min(seeds, options.max_seeds))
    return DecidingPlan(Waves(sizes, best=options.best), options.budget)


def run_until_decided(
    methods: Sequence[str],
    plan: DecidingPlan,
    run: Callable[[Sequence[str], Sequence[int]], list[Run]],
    collect: Callable[[Sequence[Run]], Runs],
    display: ProgressDisplay,
    started: float,
    clock: Callable[[], float] = time.monotonic,
) -> Runs:
    """Train wave after wave until all methods are decided, and return all judged runs.

    ``run`` trains methods with seeds, and ``collect`` makes runs a result whose verdict repeats all
    looks. With a budget, counted from ``started``, a wave is begun, and each of its seeds, only if
    the rest of the wave is expected to fit; the runs of an incomplete wave are kept in their
    folders but not judged.
    """
    budget, found = _Budget(plan.budget, started, clock), list[Run]()
    runs, next_methods = collect(found), tuple(methods)
    for start, stop in pairwise((0, *plan.waves.seeds)):
        wave: list[Run] = []
        # Without a budget all seeds are scheduled at once, so that no core is idle in between.
        parts = [[s] for s in range(start, stop)] if plan.budget else [list(range(start, stop))]
        for seeds in parts:
            needed = budget.exceeded_by(next_methods, stop - seeds[0])
            if needed is not None and not found:
                raise UnskewError(
                    f"decide: budget: {duration(plan.budget or 0)} is too short for the first "
                    f"wave of {plural(stop, 'seed')}, which takes about {duration(needed)} more; "
                    "give a longer budget, or fewer seeds"
                )
            if needed is not None:
                display.say(f"the next wave would exceed the budget: {decision_text(runs)}")
                return runs
            began = clock()
            part = run(next_methods, seeds)
            budget.note(part, clock() - began)
            wave += part
        found += wave
        runs = collect(found)
        verdict = runs.verdict()
        next_methods = verdict.next_methods if verdict is not None else ()
        _show(runs, len(methods) - 1, display)
        if not next_methods:
            break
    return runs


def _show(runs: Runs, rivals: int, display: ProgressDisplay) -> None:
    verdict = runs.verdict()
    if verdict is None or not verdict.pairs:
        return
    decided = sum(pair.answer != "undecided" for pair in verdict.pairs)
    display.show_decided(decided, rivals, decision_text(runs))


@dataclass
class _Budget:
    """The time that may be spent; what is to come is estimated from the runs so far."""

    seconds: float | None
    started: float
    clock: Callable[[], float]
    _seconds_per_run: dict[str, float] = field(default_factory=dict)
    _pace: float = 0.0
    """Seconds of the clock per recorded second of training; 0 if runs were only read."""

    def note(self, runs: Sequence[Run], seconds: float) -> None:
        """Remember how long runs took, by their records and by the clock."""
        recorded = {run.method: run_seconds(run) for run in runs}
        self._seconds_per_run |= recorded
        self._pace = seconds / max(sum(map(run_seconds, runs)), 1e-9)

    def exceeded_by(self, methods: Sequence[str], seeds: int) -> float | None:
        """Return how long some seeds of methods take if that exceeds the budget, else None."""
        if self.seconds is None:
            return None
        recorded = sum(self._seconds_per_run.get(method, 0.0) for method in methods)
        expected = self._pace * seeds * recorded
        left = self.seconds - (self.clock() - self.started)
        return expected if expected > left else None
