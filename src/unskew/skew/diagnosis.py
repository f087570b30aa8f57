"""How skewed a federation is, in numbers that need no model: labels, sizes and features."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, rel_entr

from unskew.skew.feature_skew import feature_skews

if TYPE_CHECKING:
    from unskew.data.federation import Federation

Counts = NDArray[np.int64]

DEFINITIONS = {
    "clients": "How many clients there are.",
    "empty_clients": "How many of them hold no sample.",
    "samples": "How many samples they hold together.",
    "label_skew": "Which share of a client's samples would have to change their label to match "
    "the labels of all clients together (total variation), on average over samples: 0 to 1.",
    "label_skew_by_chance": "The label_skew to expect if samples were dealt out at random to "
    "clients of these sizes: small clients differ by chance alone.",
    "label_divergence": "Jensen-Shannon divergence in bits between a client's labels and those "
    "of all clients together, on average over samples: 0 to 1.",
    "classes_held": "How many classes a client holds, on average over clients with samples.",
    "effective_classes": "How many equally frequent classes would be as varied as a client's "
    "labels (2 to the power of their entropy in bits), on average over clients with samples.",
    "size_gini": "Gini coefficient of the clients' sizes: 0 if all are equal, near 1 if one "
    "client holds everything.",
    "size_ratio": "The largest client's size over that of the smallest one that holds any.",
    "feature_skew": "Which share of the features' variance lies between clients (eta squared), "
    "less what sampling alone would cause: 0 if alike, 1 if clients are all the difference. "
    "Label skew moves it too.",
    "feature_skew_in_class": "The same among samples of one class: how differently clients see "
    "the same thing, whatever their labels.",
}
"""What each number of a diagnosis means, in words."""

BLOCK = 65_536
"""Clients looked at in one go, so that a million clients need little memory."""


@dataclass(frozen=True)
class Diagnosis:
    """The numbers; ``DEFINITIONS`` says what they mean. Feature skew is None where unknown."""

    clients: int
    empty_clients: int
    samples: int
    label_skew: float
    label_skew_by_chance: float
    label_divergence: float
    classes_held: float
    effective_classes: float
    size_gini: float
    size_ratio: float
    feature_skew: float | None = None
    feature_skew_in_class: float | None = None

    def __str__(self) -> str:
        known = {name: text for name, text in self.texts().items() if text != "-"}
        wide, long = max(map(len, known)), max(map(len, known.values()))
        return "\n".join(
            f"{name:<{wide}}  {text:>{long}}  {DEFINITIONS[name]}" for name, text in known.items()
        )

    def texts(self) -> dict[str, str]:
        """Return the values as they are shown, "-" for those that are not known."""
        return {name: _text(value) for name, value in self.to_dict().items()}

    def to_dict(self) -> dict[str, int | float | None]:
        """Return plain values by name, for JSON and tables."""
        return asdict(self)


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def diagnose(federation: "Federation") -> Diagnosis:
    """Measure the skew of a federation's training samples, features included."""
    counts = federation.train.label_counts(federation.classes)
    overall, in_class = feature_skews(federation.train)
    labels = diagnose_counts(counts).to_dict()
    return Diagnosis(**{**labels, "feature_skew": overall, "feature_skew_in_class": in_class})  # type: ignore[arg-type]


def diagnose_counts(counts: Counts) -> Diagnosis:
    """Measure the skew of labels and sizes, given the label counts (clients x classes)."""
    sizes = counts.sum(axis=1)
    pooled = counts.sum(axis=0) / max(1, int(sizes.sum()))
    held = counts[sizes > 0]
    blocks = [held[start : start + BLOCK] for start in range(0, len(held), BLOCK)]
    sums = np.array([_label_sums(block, pooled) for block in blocks]).reshape(-1, 4).sum(axis=0)
    samples, holders = int(sizes.sum()), max(1, len(held))
    return Diagnosis(
        clients=len(counts),
        empty_clients=len(counts) - len(held),
        samples=samples,
        label_skew=float(sums[0] / max(1, samples)),
        label_skew_by_chance=_by_chance(sizes, pooled),
        label_divergence=float(sums[1] / max(1, samples)),
        classes_held=float(sums[2] / holders),
        effective_classes=float(sums[3] / holders),
        size_gini=gini(sizes),
        size_ratio=float(sizes.max(initial=0) / sizes[sizes > 0].min(initial=max(1, samples))),
    )


def gini(sizes: Counts) -> float:
    """Return the Gini coefficient: half the mean difference of two clients over the mean size."""
    total, clients = sizes.sum(), len(sizes)
    if total == 0:
        return 0.0
    ranks = 2 * np.arange(1, clients + 1) - clients - 1
    return float((ranks * np.sort(sizes)).sum() / (clients * total))


def _label_sums(counts: Counts, pooled: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """Add up, over clients: variation and divergence by samples, classes, effective classes."""
    sizes = counts.sum(axis=1)
    shares = counts / sizes[:, None]
    variation = np.abs(shares - pooled).sum(axis=1) / 2
    middle = (shares + pooled) / 2
    divergence = (rel_entr(shares, middle) + rel_entr(pooled, middle)).sum(axis=1) / 2 / np.log(2)
    entropy = -rel_entr(shares, 1.0).sum(axis=1)
    return (
        float(sizes @ variation),
        float(sizes @ divergence),
        float((counts > 0).sum()),
        float(np.exp(entropy).sum()),
    )


def _by_chance(sizes: Counts, pooled: NDArray[np.float64]) -> float:
    """Return the label skew to expect of samples dealt out at random.

    A client's count of a class is then nearly binomial, whose mean absolute deviation De Moivre
    gave in closed form: 2 (m + 1) b(m + 1) (1 - p) with m = floor(n p) and b the binomial
    probability. The square root corrects for drawing without replacement.
    """
    total = int(sizes.sum())
    if total < 2:
        return 0.0
    n, clients = np.unique(sizes[sizes > 0], return_counts=True)
    p = pooled[(pooled > 0) & (pooled < 1)]
    n_, k = n[:, None], np.floor(n[:, None] * p) + 1
    log_binomial = (
        gammaln(n_ + 1) - gammaln(k + 1) - gammaln(n_ - k + 1) + k * np.log(p)
        + (n_ - k) * np.log1p(-p)
    )  # fmt: skip
    deviation = 2 * k * (1 - p) * np.exp(log_binomial) * np.sqrt((total - n_) / (total - 1))
    return float(clients @ deviation.sum(axis=1) / 2 / total)
