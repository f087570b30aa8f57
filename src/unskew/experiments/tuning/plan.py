"""The plan of a search: its options, which are the same for all methods."""

import math
from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.experiments.tuning.trials import lrs_around
from unskew.utils.specs import validated

SHARE = 0.2
"""The share of each client's training samples used for validation, rounded down."""

TRIALS = 6
"""The default number of trials per method."""

ROUNDS = 0.25
"""The default number of rounds per trial, as a share of the run's rounds, rounded up."""

FACTOR = 4
"""The default learning rates are the run's, and the run's divided and multiplied by this."""

LearningRate = Annotated[float, Field(gt=0)]


class Tuning(BaseModel):
    """The options of a search; options that are None follow from the settings of the runs."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    lr: Annotated[tuple[LearningRate, ...], Field(strict=False)] | None = None
    trials: Annotated[int, Field(ge=1, le=100)] | None = None
    rounds: Annotated[int, Field(ge=1)] | None = None

    @field_validator("lr")
    @classmethod
    def _at_least_two(cls, lrs: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if lrs is not None and len(set(lrs)) < max(2, len(lrs)):
            raise ValueError(
                "give at least two distinct learning rates: some methods have nothing else to tune"
            )
        return lrs


class SearchPlan(BaseModel):
    """A search: the trials and rounds per method, and the learning rates that are tried first."""

    model_config = ConfigDict(frozen=True)

    lrs: tuple[float, ...]
    trials: int
    rounds: int
    seed: int

    @property
    def remaining(self) -> int:
        """The number of trials that remain after every learning rate was tried."""
        return self.trials - len(self.lrs)


def make_plan(tune: bool | Mapping[str, Any], settings: Settings, seed: int) -> SearchPlan | None:
    """Return the plan for ``tune``: True or options of :class:`Tuning`; False gives None."""
    if tune is False:
        return None
    options = Tuning() if tune is True else validated(Tuning, tune, "tune: ")
    lrs = options.lr or (settings.lr / FACTOR, settings.lr, settings.lr * FACTOR)
    trials = options.trials or max(TRIALS, len(lrs))
    if trials < len(lrs):
        raise UnskewError(
            f"tune: trials must be at least the number of learning rates, {len(lrs)} "
            f"(got {trials}); give more trials or fewer learning rates"
        )
    _check_spread(lrs, trials - len(lrs))
    rounds = options.rounds or math.ceil(ROUNDS * settings.rounds)
    return SearchPlan(lrs=lrs, trials=trials, rounds=rounds, seed=seed)


def _check_spread(lrs: tuple[float, ...], remaining: int) -> None:
    """Raise if the learning rates are too close to fit all trials, whichever is the best."""
    available = min(len(list(islice(lrs_around(best, lrs), remaining))) for best in lrs)
    if available < remaining:
        raise UnskewError(
            f"tune: lr: the learning rates {', '.join(f'{lr:g}' for lr in lrs)} are so close that "
            f"only {available} of {remaining} remaining trials fit between them; spread them or "
            "give fewer trials"
        )
