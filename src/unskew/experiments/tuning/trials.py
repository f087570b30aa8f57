"""The settings that are tried: first the learning rates, then the method's published values.

A method is first tried as requested with every learning rate. With the best one, its published
values are tried in a seeded order. The remaining trials, which are all of them for a method without
published values, use learning rates around the best one. So every method gets the same number of
trials.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice, product
from typing import Any

from unskew.composition.method import Method
from unskew.composition.search_space import LogRange
from unskew.methods import search_grid, with_options
from unskew.methods._registry import Option
from unskew.utils.rng import generator

_POINTS = 4
"""The number of values tried of a range."""

_HALVINGS = 12
"""The maximum number of halvings of a step; by then rates of four digits hardly differ."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A method with all its options, and a learning rate."""

    method: Method
    lr: float

    @property
    def name(self) -> str:
        """The method's spec string."""
        return self.method.spec


def first_trials(method: Method, lrs: Sequence[float]) -> list[Trial]:
    """Return one trial per learning rate."""
    return [Trial(method, lr) for lr in lrs]


def further_trials(
    method: Method, best: float, lrs: Sequence[float], count: int, seed: int
) -> list[Trial]:
    """Return ``count`` more trials, given the best of ``lrs``: published values, then rates."""
    published = grid_options(method)
    order = generator(seed, "tuning").permutation(len(published))[:count]
    trials = [Trial(with_options(method, published[index]), best) for index in order]
    closer = islice(lrs_around(best, lrs), count - len(trials))
    return trials + [Trial(method, lr) for lr in closer]


def grid_options(method: Method) -> list[dict[Option, Any]]:
    """Return every combination of a method's published values except its current one.

    An option that was set to a value other than its default keeps that value.
    """
    free = {
        key: values.points(_POINTS) if isinstance(values, LogRange) else values
        for key, values in search_grid(method).items()
        if _is_default(method, key)
    }
    combinations = [dict(zip(free, values, strict=True)) for values in product(*free.values())]
    return [values for values in combinations if with_options(method, values) != method]


def lrs_around(best: float, lrs: Sequence[float]) -> Iterator[float]:
    """Yield new learning rates on both sides of the best, in ever finer steps.

    They are less than a step away, where a step is the mean ratio of neighbouring rates, and always
    within the range of ``lrs``: a method with nothing else to tune must not search a wider range.
    They have four significant digits, so few fit between rates that are close together.
    """
    low, high = min(lrs), max(lrs)
    step = (high / low) ** (1 / (len(lrs) - 1))
    seen = set(lrs)
    for fraction in _step_fractions():
        for exponent in (fraction, -fraction):
            lr = float(f"{best * step**exponent:.4g}")
            if low < lr < high and lr not in seen:
                seen.add(lr)
                yield lr


def _step_fractions() -> Iterator[float]:
    """Yield 1/2, then 1/4 and 3/4, then the odd eighths, and so on."""
    for halvings in range(1, _HALVINGS + 1):
        for odd in range(1, 2**halvings, 2):
            yield odd / 2**halvings


def _is_default(method: Method, key: Option) -> bool:
    """Return whether an option of one of the parts has its default value."""
    name, option = key
    part = next(part for part in method.parts if part.name == name)
    return any(
        field.name == option and getattr(part, option) == field.default for field in fields(part)
    )
