"""Measures of skew that need no model: of labels, client sizes and features."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, rel_entr

from unskew.errors import NotAFederationError
from unskew.skew.feature_skew import feature_skews
from unskew.utils.html import html_table

if TYPE_CHECKING:
    from unskew.data.federation import Federation

Counts = NDArray[np.int64]

DEFINITIONS = {
    "clients": "Number of clients.",
    "empty_clients": "Number of clients without samples.",
    "samples": "Number of samples of all clients.",
    "label_skew": "Share of a client's samples whose label would have to change to match the "
    "label distribution of all clients (total variation), averaged over samples: 0 to 1.",
    "label_skew_by_chance": "The label_skew to expect from a random partition into clients of "
    "these sizes: small clients differ by chance alone.",
    "label_divergence": "Jensen-Shannon divergence in bits between a client's label distribution "
    "and that of all clients, averaged over samples: 0 to 1.",
    "classes_held": "Number of classes per client, averaged over clients with samples.",
    "effective_classes": "Number of equally frequent classes with the same entropy as a client's "
    "labels (2 to the power of the entropy in bits), averaged over clients with samples.",
    "size_gini": "Gini coefficient of the client sizes: 0 if all are equal, near 1 if one "
    "client holds all samples.",
    "size_ratio": "Size of the largest client divided by that of the smallest non-empty client.",
    "feature_skew": "Share of the features' variance that lies between clients (eta squared), "
    "minus what sampling alone would cause: 0 if clients are alike, 1 if all variance is between "
    "them. Label skew raises it too.",
    "feature_skew_in_class": "The same within each class: how much the features of one class "
    "differ between clients, independent of label skew.",
}
"""What each measure of a diagnosis means."""

BLOCK = 65_536
"""The number of clients processed at a time, so that a million clients need little memory."""


@dataclass(frozen=True)
class Diagnosis:
    """The measures that ``DEFINITIONS`` explains; feature skew is None if it is unknown."""

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
        name_width, text_width = max(map(len, known)), max(map(len, known.values()))
        return "\n".join(
            f"{name:<{name_width}}  {text:>{text_width}}  {DEFINITIONS[name]}"
            for name, text in known.items()
        )

    def __repr__(self) -> str:
        known = (
            f"{name}={value:.3f}" if isinstance(value, float) else f"{name}={value}"
            for name, value in self.to_dict().items()
        )
        return f"Diagnosis({', '.join(known)})"

    def _repr_html_(self) -> str:
        rows = [
            [name.replace("_", " "), text, DEFINITIONS[name]]
            for name, text in self.texts().items()
            if text != "-"
        ]
        return html_table(["measure", "value", "meaning"], rows, text_columns=(0, 2))

    def texts(self) -> dict[str, str]:
        """Return the formatted values by name, with "-" for unknown ones."""
        return {name: _text(value) for name, value in self.to_dict().items()}

    def to_dict(self) -> dict[str, int | float | None]:
        """Return plain values by name for JSON and tables."""
        return asdict(self)


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def diagnose(federation: "Federation") -> Diagnosis:
    """Measure the skew of a federation's training samples, features included.

    Ten quantile bins of a regression target stand for classes.
    """
    if not hasattr(federation, "with_target_bins"):
        raise NotAFederationError(federation)
    federation = federation.with_target_bins()
    counts = federation.train.label_counts(federation.classes)
    overall, in_class = feature_skews(federation.train)
    labels = diagnose_counts(counts).to_dict()
    return Diagnosis(**{**labels, "feature_skew": overall, "feature_skew_in_class": in_class})  # type: ignore[arg-type]


def diagnose_counts(counts: Counts) -> Diagnosis:
    """Measure the skew of labels and sizes from label counts (clients x classes)."""
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
    """Return the Gini coefficient: half the mean absolute difference, divided by the mean."""
    total, clients = sizes.sum(), len(sizes)
    if total == 0:
        return 0.0
    ranks = 2 * np.arange(1, clients + 1) - clients - 1
    return float((ranks * np.sort(sizes)).sum() / (clients * total))


def _label_sums(counts: Counts, pooled: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """Sum over clients: variation and divergence weighted by size, classes, effective classes."""
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
    """Return the label skew to expect from a random partition.

    A client's count of a class is then approximately binomial. The mean absolute deviation of a
    binomial has De Moivre's closed form 2 (m + 1) b(m + 1) (1 - p) with m = floor(n p) and b the
    binomial probability. The square root corrects for drawing without replacement.
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
