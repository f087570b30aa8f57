"""The metric by which runs are compared: accuracy if the model has one, otherwise the loss."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A metric: its name, whether higher values are better, and its format."""

    name: str
    more_is_better: bool

    @property
    def worst(self) -> str:
        """The key of the worst client's value in a summary over clients."""
        return "min" if self.more_is_better else "max"

    def reaches(self, value: float, target: float) -> bool:
        """Return whether a value is at least as good as the target."""
        return value >= target if self.more_is_better else value <= target

    def best(self, values: list[float]) -> float:
        """Return the best value."""
        return max(values) if self.more_is_better else min(values)

    def worst_of(self, values: list[float]) -> float:
        """Return the worst value."""
        return min(values) if self.more_is_better else max(values)

    def reached_by_all(self, bests: list[float]) -> float:
        """Return a rounded target that all of these reach: whole per cent, or three digits."""
        if self.more_is_better:
            # Rounded first, because 100 * 0.57 is below 57 in floating point.
            return math.floor(round(100 * min(bests), 6)) / 100
        worst = max(bests)
        unit = 10.0 ** (math.floor(math.log10(worst)) - 2) if worst > 0 else 1.0
        return math.ceil(worst / unit) * unit

    def text(self, value: float | None, spread: float | None = None) -> str:
        """Format a value, with its standard deviation if given; "-" if there is no value."""
        if value is None or math.isnan(value):
            return "-"
        if self.more_is_better:
            band = "" if spread is None else f" ± {100 * spread:.2f}"
            return f"{100 * value:.2f}{band} %"
        band = "" if spread is None else f" ± {spread:.4g}"
        return f"{value:.5g}{band}"


ACCURACY = Metric("accuracy", more_is_better=True)
LOSS = Metric("loss", more_is_better=False)
