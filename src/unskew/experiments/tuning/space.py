"""The search space of a method: the learning rate, its own options, and the clipping norm."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any

import numpy as np

from unskew.composition.method import Method
from unskew.composition.search_space import LogRange, Searched
from unskew.errors import UnskewError
from unskew.experiments.tuning.plan import SearchPlan, rounded
from unskew.methods import search_grid, with_options
from unskew.methods._registry import Option
from unskew.utils.rng import generator

_EDGE = 0.1
"""The share of a range, on its logarithmic scale, that counts as its edge."""

_EXTENSION = 4.0
"""The factor by which a range is extended beyond its edge."""

Params = Mapping[str, Any]
"""The values of a setting by name: ``lr``, ``clip``, and ``PART.OPTION``."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A setting that is tried: a method with all its options, a learning rate, a norm."""

    method: Method
    lr: float
    clip: float | None = None

    @property
    def name(self) -> str:
        """The method's spec string."""
        return self.method.spec

    @property
    def text(self) -> str:
        """The setting in words, which distinguish it from all others."""
        clip = "" if self.clip is None else f", clip {self.clip:g}"
        return f"{self.name}, lr {self.lr:g}{clip}"


@dataclass(frozen=True)
class Space:
    """What is searched for one method."""

    method: Method
    ranges: Mapping[str, Searched]
    options: Mapping[str, Option]
    """The part and option of each name that is one."""

    @staticmethod
    def of(method: Method, plan: SearchPlan) -> "Space":
        """Return the space of a method as it was requested."""
        ranges: dict[str, Searched] = {"lr": LogRange(*plan.lr)}
        free = free_options(method)
        names = {f"{part}.{option}": (part, option) for part, option in free}
        ranges |= {
            name: _including(free[option], value_of(method, option))
            for name, option in names.items()
        }
        if plan.clips:
            ranges["clip"] = (0.0, *plan.clips)  # 0 is none
        return Space(method, ranges, names)

    @property
    def lr_range(self) -> tuple[float, float]:
        """The lowest and the highest learning rate."""
        lr = self.ranges["lr"]
        assert isinstance(lr, LogRange)
        return lr.low, lr.high

    def requested(self, lr: float) -> Params:
        """Return the setting that was requested, with a learning rate."""
        own = {name: value_of(self.method, option) for name, option in self.options.items()}
        return {"lr": lr, **own, **({"clip": 0.0} if "clip" in self.ranges else {})}

    def quasi_random(self, count: int, seed: int) -> list[Params]:
        """Return settings that fill the space evenly, from a seeded start."""
        points = _kronecker_sequence(len(self.ranges), count, seed)
        return [
            {
                name: _at(searched, share)
                for (name, searched), share in zip(self.ranges.items(), point, strict=True)
            }
            for point in points
        ]

    def trial(self, params: Params) -> Trial:
        """Return a setting; numbers of ranges have three digits."""
        values = {
            name: rounded(params[name]) if isinstance(searched, LogRange) else params[name]
            for name, searched in self.ranges.items()
        }
        changed = {option: values[name] for name, option in self.options.items()}
        return Trial(with_options(self.method, changed), values["lr"], values.get("clip") or None)

    def edges(self, params: Params) -> dict[str, str]:
        """Return the names whose values lie at an edge of what was searched: ``low`` or ``high``.

        Clipping is on or off, so it has no edge.
        """
        sides = {
            name: _edge(searched, params[name])
            for name, searched in self.ranges.items()
            if name != "clip"
        }
        return {name: side for name, side in sides.items() if side is not None}

    def extended(self, side: str) -> "tuple[Space, float]":
        """Return the space with more learning rates on a side, and one of the new ones."""
        low, high = self.lr_range
        if side == "low":
            wider, probe = LogRange(low / _EXTENSION, high), low / math.sqrt(_EXTENSION)
        else:
            wider, probe = LogRange(low, high * _EXTENSION), high * math.sqrt(_EXTENSION)
        return replace(self, ranges={**self.ranges, "lr": wider}), probe


def _edge(searched: Searched, value: Any) -> str | None:
    """Return the edge at which a value lies: the outer tenth of a range, or the ends of a list."""
    if isinstance(searched, LogRange):
        position = math.log(value / searched.low)
        share = position / math.log(searched.high / searched.low)
        return "low" if share <= _EDGE else "high" if share >= 1 - _EDGE else None
    numbers = [each for each in searched if isinstance(each, int | float)]
    if len(numbers) < len(searched) or len(numbers) < 3:
        return None
    return "low" if value <= min(numbers) else "high" if value >= max(numbers) else None


def value_of(method: Method, option: Option) -> Any:
    """Return the value of an option of one of a method's parts."""
    name, field = option
    return getattr(next(part for part in method.parts if part.name == name), field)


def _including(searched: Searched, value: Any) -> Searched:
    """Return what is searched, with the default value."""
    if isinstance(searched, LogRange):
        return LogRange(min(searched.low, value), max(searched.high, value))
    return searched if value in searched else (value, *searched)


def _kronecker_sequence(dimensions: int, count: int, seed: int) -> list[list[float]]:
    """Return points of the unit cube: multiples of one irrational vector, modulo 1.

    The vector holds the powers of the root of x^(d+1) = x + 1, which is the golden ratio for one
    dimension: no other is known to fill the cube more evenly for every number of points.
    """
    root = 2.0
    for _ in range(60):
        root = (1 + root) ** (1 / (dimensions + 1))
    shift = generator(seed, "tuning").random(dimensions)
    steps = np.array([root ** -(i + 1) for i in range(dimensions)])
    points: list[list[float]] = ((shift + np.outer(np.arange(count), steps)) % 1.0).tolist()
    return points


def _at(searched: Searched, share: float) -> float | str:
    """Return the value at a share of the way through what is searched."""
    if isinstance(searched, LogRange):
        return float(searched.low * (searched.high / searched.low) ** share)
    return searched[min(int(share * len(searched)), len(searched) - 1)]


def free_options(method: Method) -> dict[Option, Searched]:
    """Return what is searched of a method's options: those that were not given."""
    given = {(part.name, option) for part in method.parts for option in part.given_options}
    return {key: searched for key, searched in search_grid(method).items() if key not in given}


def check_disjoint(methods: Sequence[Method]) -> None:
    """Raise if the searches of two methods could choose the same spec."""
    for one, other in combinations(methods, 2):
        if [type(part) for part in one.parts] != [type(part) for part in other.parts]:
            continue
        values, others = _all_values(one), _all_values(other)
        common = {key: _common(values[key], others[key]) for key in values}
        if all(common.values()):
            chosen = {key: common[key][0] for key in search_grid(one)}
            raise UnskewError(
                f"tune: {one.spec} and {other.spec} may both become "
                f"{with_options(one, chosen).spec}; remove one of them"
            )


def _all_values(method: Method) -> dict[Option, Any]:
    """Return the values that a search may give every option of a method."""
    values: dict[Option, Any] = {
        (part.name, field.name): (getattr(part, field.name),)
        for part in method.parts
        for field in fields(part)
    }
    for key, searched in free_options(method).items():
        values[key] = searched if isinstance(searched, LogRange) else (*values[key], *searched)
    return values


def _common(one: Any, other: Any) -> list[Any]:
    """Return values that two options may both have."""
    if isinstance(one, LogRange) and isinstance(other, LogRange):
        low = max(one.low, other.low)
        return [low] if low <= min(one.high, other.high) else []
    if isinstance(one, LogRange):
        one, other = other, one
    if isinstance(other, LogRange):
        return [value for value in one if other.low <= value <= other.high]
    return [value for value in one if value in other]
