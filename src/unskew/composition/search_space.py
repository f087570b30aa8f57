"""What a search tries for the options of a part: a list of values, or a range of numbers."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class LogRange:
    """The numbers from ``low`` to ``high``, searched on a logarithmic scale."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Reject a range that is empty or has no logarithm."""
        if not 0 < self.low < self.high:
            raise ValueError(f"a range needs 0 < low < high (got {self.low:g} and {self.high:g})")

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"

    def points(self, count: int) -> tuple[float, ...]:
        """Return ``count`` numbers at equal ratios, from the lowest to the highest."""
        ratio = self.high / self.low
        return tuple(float(f"{self.low * ratio ** (i / (count - 1)):.4g}") for i in range(count))


Searched = tuple[float | str, ...] | LogRange
"""The values of an option that a search tries."""

SearchSpace = Mapping[str, Searched]
"""What a search tries for each option; an option that it does not name is not searched."""
