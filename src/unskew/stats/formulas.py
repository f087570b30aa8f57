"""Metrics of all predictions together, such as the AUC; scikit-learn computes most of them.

A formula takes the targets and the scores of samples. The scores of a binary task are the
probabilities of class 1, those of a task with more classes one probability per class, and those of
a regression the predicted values. The result is NaN where a metric is undefined, such as the AUC of
samples of one class.
"""

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass as plain_dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.stats.metric import Metric
from unskew.utils.specs import OPTIONS

TaskKind = Literal["binary", "multiclass", "regression"]
Array = NDArray[Any]

CLASSES: tuple[TaskKind, ...] = ("binary", "multiclass")
BINS = 10
"""The number of bins of the calibration error, equally wide."""


class Formula(ABC):
    """A metric of targets and scores. Subclasses are frozen dataclasses of its options."""

    summary: ClassVar[str]
    tasks: ClassVar[tuple[TaskKind, ...]]
    more_is_better: ClassVar[bool] = True
    is_share: ClassVar[bool] = True

    @abstractmethod
    def compute(self, y: Array, scores: Array) -> float:
        """Return the value; the samples are at least one."""

    def name(self, key: str) -> str:
        """Return the name of the metric, given that of the formula."""
        return key

    def no_skill(self, classes: int) -> float | None:
        """Return the value of predictions that ignore the sample; None if it depends on data."""
        del classes
        return None

    def metric(self, key: str, classes: int) -> Metric:
        """Return what a report needs to know of it, given the name of the formula."""
        skill = self.no_skill(classes)
        return Metric(self.name(key), self.more_is_better, self.is_share, no_skill=skill)

    def __call__(self, y: Array, scores: Array) -> float:
        """Return the value, NaN where it is undefined."""
        if not len(y) or not np.isfinite(scores).all():
            return math.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn warns of classes without samples
            return float(self.compute(y, scores))


@plain_dataclass(frozen=True)
class PredictionMetric:
    """A metric and how it is computed from targets and scores."""

    metric: Metric
    compute: Any
    """A function of targets and scores."""

    @property
    def name(self) -> str:
        """The name under which the value is recorded."""
        return self.metric.name


@dataclass(frozen=True, config=OPTIONS)
class AUC(Formula):
    """The area under the ROC curve; with more classes, the mean of one class versus the rest."""

    summary = "area under the ROC curve; with more classes, one versus the rest, averaged"
    tasks = CLASSES

    def compute(self, y: Array, scores: Array) -> float:
        """Return the area; classes without samples do not enter the mean."""
        from sklearn.metrics import roc_auc_score  # noqa: PLC0415 (slow to import)

        present = np.unique(y)
        if len(present) < 2:
            return math.nan
        if scores.ndim == 1:
            return float(roc_auc_score(y, scores))
        return float(np.mean([roc_auc_score(y == c, scores[:, c]) for c in present]))

    def no_skill(self, classes: int) -> float:
        """Return one half: any order of the samples is as good."""
        del classes
        return 0.5


@dataclass(frozen=True, config=OPTIONS)
class PRAUC(Formula):
    """The average precision of class 1, which is the area under the precision-recall curve."""

    summary = "average precision of class 1: the area under the precision-recall curve"
    tasks = ("binary",)

    def compute(self, y: Array, scores: Array) -> float:
        """Return the average precision."""
        from sklearn.metrics import average_precision_score  # noqa: PLC0415

        return float(average_precision_score(y, scores)) if y.any() else math.nan


@dataclass(frozen=True, config=OPTIONS)
class F1(Formula):
    """The F1 score of class 1 at a threshold of one half."""

    summary = "F1 score of class 1"
    tasks = ("binary",)

    def compute(self, y: Array, scores: Array) -> float:
        """Return the score."""
        from sklearn.metrics import f1_score  # noqa: PLC0415

        return float(f1_score(y, _predicted(scores), zero_division=np.nan))


@dataclass(frozen=True, config=OPTIONS)
class MacroF1(Formula):
    """The mean of the F1 scores of the classes that occur."""

    summary = "mean of the classes' F1 scores"
    tasks = CLASSES

    def compute(self, y: Array, scores: Array) -> float:
        """Return the mean."""
        from sklearn.metrics import f1_score  # noqa: PLC0415

        return float(f1_score(y, _predicted(scores), average="macro", zero_division=0.0))


@dataclass(frozen=True, config=OPTIONS)
class BalancedAccuracy(Formula):
    """The mean of the classes' recalls."""

    summary = "mean of the classes' recalls"
    tasks = CLASSES

    def compute(self, y: Array, scores: Array) -> float:
        """Return the mean."""
        from sklearn.metrics import balanced_accuracy_score  # noqa: PLC0415

        return float(balanced_accuracy_score(y, _predicted(scores)))

    def no_skill(self, classes: int) -> float:
        """Return the recall of one class, 1, among those of the others, 0."""
        return 1 / classes


@dataclass(frozen=True, config=OPTIONS)
class Sensitivity(Formula):
    """The largest sensitivity at thresholds of at least the given specificity."""

    summary = "largest sensitivity at a specificity of at least 0.9"
    tasks = ("binary",)

    specificity: Annotated[float, Field(gt=0, lt=1)] = 0.9

    def compute(self, y: Array, scores: Array) -> float:
        """Return the sensitivity."""
        from sklearn.metrics import roc_curve  # noqa: PLC0415

        if len(np.unique(y)) < 2:
            return math.nan
        false, true, _ = roc_curve(y, scores, drop_intermediate=False)
        return float(true[false <= 1 - self.specificity + 1e-12].max())

    def no_skill(self, classes: int) -> float:
        """Return the share of all samples that may be called class 1."""
        del classes
        return 1 - self.specificity

    def name(self, key: str) -> str:
        """Return the name, with a specificity that is not the default."""
        return key if self == Sensitivity() else f"{key}_at_{self.specificity:g}"


@dataclass(frozen=True, config=OPTIONS)
class Brier(Formula):
    """The mean squared difference of probabilities and outcomes."""

    summary = "mean squared difference of the probability of class 1 and the outcome"
    tasks = ("binary",)
    more_is_better = False
    is_share = False

    def compute(self, y: Array, scores: Array) -> float:
        """Return the score."""
        return float(np.mean((scores - y) ** 2))


@dataclass(frozen=True, config=OPTIONS)
class CalibrationError(Formula):
    """The expected calibration error: by how much confidence differs from accuracy, on average.

    Samples are divided by their probability into ten bins of equal width. A binary task compares
    the mean probability of class 1 with its share in each bin; with more classes, the confidence of
    the predicted class is compared with the accuracy.
    """

    summary = "expected calibration error in ten bins"
    tasks = CLASSES
    more_is_better = False
    is_share = False

    def compute(self, y: Array, scores: Array) -> float:
        """Return the error."""
        if scores.ndim == 1:
            confidence, outcome = scores, y.astype(np.float64)
        else:
            confidence = scores.max(1)
            outcome = (scores.argmax(1) == y).astype(np.float64)
        bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
        gaps = np.bincount(bins, confidence - outcome, BINS)
        return float(np.abs(gaps).sum() / len(y))


@dataclass(frozen=True, config=OPTIONS)
class Recall(Formula):
    """The share of a class's samples that are predicted as this class."""

    summary = "recall of every class, or with recall:label=2 of one"
    tasks = CLASSES

    label: Annotated[int, Field(ge=0)] | None = None

    def compute(self, y: Array, scores: Array) -> float:
        """Return the recall of the class."""
        chosen = y == self.label
        return (
            float(np.mean(_predicted(scores)[chosen] == self.label)) if chosen.any() else math.nan
        )

    def name(self, key: str) -> str:
        """Return the name with the class."""
        return f"{key}_{self.label}"


@dataclass(frozen=True, config=OPTIONS)
class MAE(Formula):
    """The mean absolute error."""

    summary = "mean absolute error"
    tasks = ("regression",)
    more_is_better = False
    is_share = False

    def compute(self, y: Array, scores: Array) -> float:
        """Return the error."""
        return float(np.mean(np.abs(y - scores)))


@dataclass(frozen=True, config=OPTIONS)
class RMSE(Formula):
    """The root of the mean squared error."""

    summary = "root of the mean squared error"
    tasks = ("regression",)
    more_is_better = False
    is_share = False

    def compute(self, y: Array, scores: Array) -> float:
        """Return the error."""
        return math.sqrt(np.mean((y - scores) ** 2))


@dataclass(frozen=True, config=OPTIONS)
class R2(Formula):
    """The coefficient of determination: the share of the variance that is explained."""

    summary = "coefficient of determination"
    tasks = ("regression",)
    is_share = False

    def compute(self, y: Array, scores: Array) -> float:
        """Return the coefficient; it is undefined for equal targets."""
        from sklearn.metrics import r2_score  # noqa: PLC0415

        return float(r2_score(y, scores)) if np.ptp(y) > 0 else math.nan


FORMULAS: dict[str, type[Formula]] = {
    "auc": AUC,
    "pr_auc": PRAUC,
    "f1": F1,
    "macro_f1": MacroF1,
    "balanced_accuracy": BalancedAccuracy,
    "sensitivity": Sensitivity,
    "brier": Brier,
    "calibration_error": CalibrationError,
    "recall": Recall,
    "mae": MAE,
    "rmse": RMSE,
    "r2": R2,
}
"""Every formula by name."""


def _predicted(scores: Array) -> Array:
    """Return the predicted classes; a probability of one half is class 0, as for logits."""
    return (scores > 0.5).astype(np.int64) if scores.ndim == 1 else scores.argmax(1)
