"""The measures of studies: names, titles, and whether more is better."""

import math
from dataclasses import dataclass

from unskew.errors import UnskewError


@dataclass(frozen=True)
class Measure:
    """The title of a measure, its printed digits, and whether more is better."""

    title: str
    more_is_better: bool = True
    digits: int = 2

    @property
    def in_points(self) -> bool:
        """Whether differences are percentage points, as the unit in the title says."""
        return self.title.endswith(("%", "points"))

    def text(self, value: float) -> str:
        """Format a value for tables; NaN is "-"."""
        return "-" if math.isnan(value) else f"{value:,.{self.digits}f}"


MEASURES: dict[str, Measure] = {
    "global": Measure("global model on the common test, %"),
    "outputs": Measure("mean of a method's final models on the common test, %"),
    "global-last10": Measure("global model, mean of the last ten rounds, %"),
    "global-best": Measure("best round of the global model, %"),
    "local": Measure("global model on local tests, %"),
    "local-last10": Measure("global model on local tests, mean of the last ten rounds, %"),
    "personal": Measure("personal model on local tests, %"),
    "personal-last10": Measure("personal model on local tests, mean of the last ten rounds, %"),
    "worst": Measure("worst client, %"),
    "local-sd": Measure("standard deviation over clients, points", more_is_better=False),
    "loss": Measure("test loss", more_is_better=False),
    "loss@2": Measure("test loss after round 2", more_is_better=False),
    "train-loss": Measure("training loss", more_is_better=False, digits=3),
    "rounds": Measure("effective communication rounds", more_is_better=False, digits=0),
    "rounds-before": Measure("of these, before the task", more_is_better=False, digits=0),
    "cost": Measure("effective communication cost, values per client", False, 0),
    "seconds": Measure("seconds per round", more_is_better=False, digits=3),
    "bias": Measure("bias of normalisation parameters", more_is_better=False, digits=4),
    "made-loss": Measure("validation loss of the global density", more_is_better=False),
    "dispersion": Measure("spread of client models over their norm", more_is_better=False,
                          digits=4),
    "high-share": Measure("coordinates of high dispersion, %"),
    "off-peak": Measure("distance from the main peak, standard deviations", more_is_better=False,
                        digits=3),
    "frechet": Measure("Fréchet distance to the true features", more_is_better=False, digits=3),
    "w1": Measure("Wasserstein distance of codes to N(0, 1)", more_is_better=False, digits=3),
}  # fmt: skip


def measure_of(name: str) -> Measure:
    """Return a measure by its name."""
    if name not in MEASURES:
        raise UnskewError(f"measure: {name!r} is not known; use one of {', '.join(MEASURES)}")
    return MEASURES[name]
