"""The figure runs are judged by: accuracy where there is one, else the loss."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A measure, which way is better, and how it is written."""

    name: str
    more_is_better: bool

    @property
    def worst(self) -> str:
        """The name of the worst client's value in a summary over clients."""
        return "min" if self.more_is_better else "max"

    def reaches(self, value: float, target: float) -> bool:
        """Tell whether a value is as good as the target."""
        return value >= target if self.more_is_better else value <= target

    def best(self, values: list[float]) -> float:
        """Return the best of some values."""
        return max(values) if self.more_is_better else min(values)

    def worst_of(self, values: list[float]) -> float:
        """Return the worst of some values."""
        return min(values) if self.more_is_better else max(values)

    def reached_by_all(self, bests: list[float]) -> float:
        """Return a round target that all of these reach: per cent, or three digits of a loss."""
        if self.more_is_better:
            # Rounded first, or 0.57 would become 56 per cent.
            return math.floor(round(100 * min(bests), 6)) / 100
        worst = max(bests)
        unit = 10.0 ** (math.floor(math.log10(worst)) - 2) if worst > 0 else 1.0
        return math.ceil(worst / unit) * unit

    def text(self, value: float | None, spread: float | None = None) -> str:
        """Write a value, with its deviation if given; "-" where there is none."""
        if value is None or math.isnan(value):
            return "-"
        if self.more_is_better:
            band = "" if spread is None else f" ± {100 * spread:.2f}"
            return f"{100 * value:.2f}{band} %"
        band = "" if spread is None else f" ± {spread:.4g}"
        return f"{value:.5g}{band}"


ACCURACY = Metric("accuracy", more_is_better=True)
LOSS = Metric("loss", more_is_better=False)
