"""The metric by which runs are compared: its name, its direction and its format."""

import math
from dataclasses import dataclass, replace

POOLED = "pooled_"
"""The prefix of a metric over the test samples of all clients together."""


@dataclass(frozen=True)
class Metric:
    """A metric: its name, whether higher values are better, and its format.

    A share is between 0 and 1: it is shown in per cent, and its differences in percentage points.
    """

    name: str
    more_is_better: bool
    is_share: bool = False
    worst_key: str | None = None
    """Where a summary over clients keeps the worst client's value, if not under ``NAME_min``."""
    no_skill: float | None = None
    """The value of a prediction that ignores the sample, where it is the same for all data."""

    @property
    def worst(self) -> str:
        """The key of the worst client's value in a summary over clients."""
        end = "min" if self.more_is_better else "max"
        return self.worst_key or f"{self.of_client}_{end}"

    @property
    def of_client(self) -> str:
        """The name under which a table of clients has the value of each client."""
        return self.name.removeprefix(POOLED)

    @property
    def sign(self) -> float:
        """The factor that makes larger values better ones."""
        return 1.0 if self.more_is_better else -1.0

    @property
    def is_pooled(self) -> bool:
        """Whether it is computed over the samples of all clients together."""
        return self.name.startswith(POOLED)

    @property
    def pooled(self) -> "Metric | None":
        """The metric over the samples of all clients together; None if it is this one."""
        if self.worst_key is not None or self.is_pooled:
            return None
        return replace(self, name=POOLED + self.name)

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
        worst = self.worst_of(bests)
        if self.is_share and self.more_is_better:
            # Rounded first, because 100 * 0.57 is below 57 in floating point.
            return math.floor(round(100 * worst, 6)) / 100
        unit = 10.0 ** (math.floor(math.log10(abs(worst))) - 2) if worst else 1.0
        rounded = math.floor if self.more_is_better else math.ceil
        return rounded(worst / unit) * unit

    def text(self, value: float | None, spread: float | None = None) -> str:
        """Format a value, with its standard deviation if given; "-" if there is no value."""
        if value is None or math.isnan(value):
            return "-"
        if self.is_share:
            band = "" if spread is None else f" ± {100 * spread:.2f}"
            return f"{100 * value:.2f}{band} %"
        band = "" if spread is None else f" ± {spread:.4g}"
        return f"{value:.5g}{band}"


ACCURACY = Metric("accuracy", more_is_better=True, is_share=True, worst_key="min")
LOSS = Metric("loss", more_is_better=False, worst_key="max")
