"""Which settings are tried: first the learning rates, then the method's published values.

A method is first tried as it is spelled with every rate; with the best rate, its published values
are tried in a seeded order. Trials that are left over, all of them for a method that publishes
none, go to rates around the best one. So every method gets exactly as many trials as any other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice, product
from typing import Any

from unskew.methods import name_of, with_options
from unskew.methods.common.base import Method
from unskew.utils.rng import generator

_HALVINGS = 12
"""Steps are halved so often at most; by then rates of four digits hardly differ."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A method with all its options, and a learning rate."""

    method: Method
    lr: float

    @property
    def name(self) -> str:
        """The method's spelling."""
        return name_of(self.method)


def first_trials(method: Method, rates: Sequence[float]) -> list[Trial]:
    """Return the trials of the learning rates."""
    return [Trial(method, rate) for rate in rates]


def further_trials(
    method: Method, best: float, rates: Sequence[float], number: int, seed: int
) -> list[Trial]:
    """Return so many more trials, given the best of the rates: published values, then rates."""
    published = settings_of_grid(method)
    order = generator(seed, "tuning").permutation(len(published))[:number]
    trials = [Trial(with_options(method, published[place]), best) for place in order]
    closer = islice(rates_around(best, rates), number - len(trials))
    return trials + [Trial(method, rate) for rate in closer]


def settings_of_grid(method: Method) -> list[dict[str, Any]]:
    """Return every combination of a method's published values but the one it has.

    An option that was given another value than its default stays as it was given.
    """
    free = {name: method.grid[name] for name in method.grid if _is_at_default(method, name)}
    combinations = [dict(zip(free, values, strict=True)) for values in product(*free.values())]
    return [values for values in combinations if not _has(method, values)]


def rates_around(best: float, rates: Sequence[float]) -> Iterator[float]:
    """Return ever closer rates on both sides of the best, each one new.

    They lie less than a step away, a step being the mean ratio of neighbouring rates, and never
    outside of the rates' range: a method with nothing else to try must not reach further. They have
    four digits, so rates that are close to each other leave but few between them.
    """
    low, high = min(rates), max(rates)
    step = (high / low) ** (1 / (len(rates) - 1))
    seen = set(rates)
    for part in _parts_of_a_step():
        for exponent in (part, -part):
            rate = float(f"{best * step**exponent:.4g}")
            if low < rate < high and rate not in seen:
                seen.add(rate)
                yield rate


def _parts_of_a_step() -> Iterator[float]:
    """Return 1/2, then 1/4 and 3/4, then the odd eighths, and so on."""
    for halvings in range(1, _HALVINGS + 1):
        for odd in range(1, 2**halvings, 2):
            yield odd / 2**halvings


def _is_at_default(method: Method, name: str) -> bool:
    return any(
        field.name == name and getattr(method, name) == field.default for field in fields(method)
    )


def _has(method: Method, values: Mapping[str, Any]) -> bool:
    return all(getattr(method, name) == value for name, value in values.items())
