"""The plan of a search: its options, which are the same for all methods."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, field_validator

from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.runs.run import Level
from unskew.utils.specs import validated

SHARE = 0.2
"""The share of each client's training samples used for validation, rounded down."""

ROUNDS = 0.25
"""The default rounds of a setting that may be chosen, as a share of the run's, rounded up."""

BUDGET = 12
"""The default budget of a method, in settings that are trained for all rounds with one seed."""

SEEDS = 2
"""The default number of seeds of a setting that may be chosen, which is also the smallest."""

FACTOR = 8
"""The default learning rates are the run's divided by this to the run's multiplied by it."""

WAVE = 4
"""How many settings are proposed at a time. It does not depend on the number of jobs, so that the
same settings are tried on every machine."""

CONTINUED, REPEATED = 2, 1
"""How many settings of a wave are trained for all rounds, and with all seeds."""


class Tuning(BaseModel):
    """The options of a search; options that are None follow from the settings of the runs."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    lr: Annotated[tuple[PositiveFloat, ...], Field(strict=False)] | None = None
    clip: Annotated[tuple[PositiveFloat, ...], Field(strict=False)] = ()
    budget: Annotated[int, Field(ge=1)] | None = None
    rounds: Annotated[int, Field(ge=1)] | None = None
    seeds: Annotated[int, Field(ge=SEEDS, le=100)] = SEEDS

    @field_validator("lr")
    @classmethod
    def _is_a_range(cls, lrs: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if lrs is not None and len(set(lrs)) < 2:
            raise ValueError("give the lowest and the highest learning rate to try, as in 0.01,0.5")
        return lrs


class SearchPlan(BaseModel):
    """A search: its budget per method, and what is searched for all of them."""

    model_config = ConfigDict(frozen=True)

    lr: tuple[float, float]
    """The lowest and the highest learning rate, until the best lies at one of them."""
    start: float
    """The learning rate of the first setting."""
    clips: tuple[float, ...]
    """The clipping norms that are tried besides none."""
    budget: int
    """Rounds of training per method, counted over settings and seeds."""
    rounds: int
    """The rounds of a setting that may be chosen."""
    seeds: tuple[int, ...]
    """The seeds of a setting that may be chosen; settings start with the first."""
    level: Level | None = None
    """The level of evaluation by which settings are judged; None: what a method is meant for."""

    @property
    def seed(self) -> int:
        """The first seed, from which the proposals derive."""
        return self.seeds[0]

    @property
    def first_rounds(self) -> int:
        """The rounds after which the better settings of a wave are trained further."""
        return math.ceil(self.rounds / 3)

    @property
    def repeat_cost(self) -> int:
        """The rounds that it takes to train a setting with all other seeds."""
        return (len(self.seeds) - 1) * self.rounds

    @property
    def wave_cost(self) -> int:
        """The rounds of a wave, at most."""
        further = CONTINUED * (self.rounds - self.first_rounds)
        return WAVE * self.first_rounds + further + REPEATED * self.repeat_cost


def make_plan(
    tune: bool | Mapping[str, Any],
    settings: Settings,
    seeds: Sequence[int],
    level: Level | None = None,
) -> SearchPlan | None:
    """Return the plan for ``tune``: True or options of :class:`Tuning`; False gives None.

    ``seeds`` are those of the comparison, of which the first are used, and ``level`` is the one at
    which it was asked to judge.
    """
    if tune is False:
        return None
    options = Tuning() if tune is True else validated(Tuning, tune, "tune: ")
    lrs = options.lr or (settings.lr / FACTOR, settings.lr * FACTOR)
    low, high = min(lrs), max(lrs)
    rounds = options.rounds or math.ceil(ROUNDS * settings.rounds)
    missing = options.seeds - len(seeds)
    more = (max(seeds) + 1 + i for i in range(missing))
    plan = SearchPlan(
        lr=(low, high),
        start=settings.lr if low <= settings.lr <= high else rounded(math.sqrt(low * high)),
        clips=options.clip,
        budget=options.budget or BUDGET * rounds,
        rounds=rounds,
        seeds=(*seeds[: options.seeds], *more),
        level=level,
    )
    if plan.budget < plan.wave_cost:
        raise UnskewError(
            f"tune: budget must be at least {plan.wave_cost} rounds per method, of which {WAVE} "
            f"settings train {plan.first_rounds}, {CONTINUED} of them {rounds} and {REPEATED} with "
            f"{len(plan.seeds)} seeds (got {plan.budget}); give a larger budget or fewer rounds"
        )
    return plan


def rounded(value: float) -> float:
    """Return a number with three significant digits: enough for a hyper-parameter."""
    return float(f"{value:.3g}")
