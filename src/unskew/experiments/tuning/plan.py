"""What a search is asked to do, the same for all methods."""

import math
from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.experiments.tuning.trials import rates_around
from unskew.utils.specs import validated

SHARE = 0.2
"""The part of each client's training samples that trials are judged by, rounded down."""

TRIALS = 6
"""How many settings each method tries, unless said otherwise."""

ROUNDS = 0.25
"""How much of the rounds a trial plays, rounded up, unless said otherwise."""

FACTOR = 4
"""Unless said otherwise, the learning rates are the run's, and that divided and multiplied."""

Rate = Annotated[float, Field(gt=0)]


class Tuning(BaseModel):
    """The options of a search; what is left out follows from the settings of the runs."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    lr: Annotated[tuple[Rate, ...], Field(strict=False)] | None = None
    trials: Annotated[int, Field(ge=1, le=100)] | None = None
    rounds: Annotated[int, Field(ge=1)] | None = None

    @field_validator("lr")
    @classmethod
    def _enough(cls, rates: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if rates is not None and len(set(rates)) < max(2, len(rates)):
            raise ValueError(
                "give at least two learning rates, each once: some methods have nothing else "
                "to tune"
            )
        return rates


class Plan(BaseModel):
    """A search: so many trials of so many rounds for each method, the first with these rates."""

    model_config = ConfigDict(frozen=True)

    rates: tuple[float, ...]
    trials: int
    rounds: int
    seed: int

    @property
    def further(self) -> int:
        """How many trials are left once every rate is tried."""
        return self.trials - len(self.rates)


def make_plan(tune: bool | Mapping[str, Any], settings: Settings, seed: int) -> Plan | None:
    """Return the search that is asked for: True, or options of :class:`Tuning`; None if none."""
    if tune is False:
        return None
    asked = Tuning() if tune is True else validated(Tuning, tune, "tune: ")
    rates = asked.lr or (settings.lr / FACTOR, settings.lr, settings.lr * FACTOR)
    trials = asked.trials or max(TRIALS, len(rates))
    if trials < len(rates):
        raise UnskewError(
            f"tune: trials must be at least the number of learning rates, {len(rates)} "
            f"(got {trials}); give more trials or fewer rates"
        )
    _check_room(rates, trials - len(rates))
    rounds = asked.rounds or math.ceil(ROUNDS * settings.rounds)
    return Plan(rates=rates, trials=trials, rounds=rounds, seed=seed)


def _check_room(rates: tuple[float, ...], further: int) -> None:
    """Complain about rates too close to each other for all trials, whichever is the best."""
    room = min(len(list(islice(rates_around(best, rates), further))) for best in rates)
    if room < further:
        raise UnskewError(
            f"tune: lr: the rates {', '.join(f'{rate:g}' for rate in rates)} are so close that "
            f"only {room} of {further} further trials fit between them; spread them, or give "
            "fewer trials"
        )
