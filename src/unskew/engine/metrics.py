"""The metrics of a run beyond accuracy and loss: from names and functions to what is computed."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.composition.part_files import function_from_file, importing_beside, names_file
from unskew.errors import UnskewError
from unskew.models.goals import Goal
from unskew.stats.formulas import FORMULAS, Formula, PredictionMetric, Recall, TaskKind
from unskew.stats.metric import ACCURACY, LOSS, POOLED, Metric
from unskew.utils.code_places import described, in_brackets, place_of_function
from unskew.utils.specs import build, parse
from unskew.utils.wording import joined

MetricSpec = str | Callable[[Any, Any], float] | PredictionMetric
"""How a metric may be given: a name, a function of targets and scores, or a made metric."""

REGRESSION_METRICS = ("rmse", "mae", "r2")
"""What a regression computes if nothing else is asked for; the first is judged."""

_RESERVED = frozenset(
    {"accuracy", "loss", "sd", "min", "q25", "median", "q75", "max", "kind", "round", "client"}
)
"""Names that levels and client tables use themselves."""


@dataclass(frozen=True, eq=False)
class MetricPlan:
    """What is computed from the predictions of a level, and what the run is judged by."""

    computed: tuple[PredictionMetric, ...] = ()
    judged: Metric | None = None
    """None: accuracy, or the loss of a network without accuracy."""
    task: TaskKind | None = None
    specs: tuple[str, ...] = field(default=())
    """The names by which a node finds the same metrics."""

    def values(self, y: NDArray[Any], scores: NDArray[np.float64]) -> dict[str, float]:
        """Return every metric of a level's predictions."""
        y = y.astype(np.float64) if y.dtype.kind == "f" else y
        return {each.name: _value(each, y, scores) for each in self.computed}

    def client_values(self, y: NDArray[Any], scores: NDArray[np.float64]) -> dict[str, float]:
        """Return every metric of one client's predictions, NaN where it is undefined.

        Functions of scikit-learn raise ValueError for samples that a metric is undefined for.
        """
        found = {}
        y = y.astype(np.float64) if y.dtype.kind == "f" else y
        for each in self.computed:
            try:
                found[each.name] = _value(each, y, scores)
            except UnskewError as error:
                if not isinstance(error.__cause__, ValueError | ZeroDivisionError):
                    raise
                found[each.name] = math.nan
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return what a report needs to know about the metrics; empty without any."""
        if self.judged is None and not self.computed:
            return {}
        judged = {} if self.judged is None else {"metric": vars(self.judged)}
        return {**judged, "metrics": [vars(each.metric) for each in self.computed]}


NO_METRICS = MetricPlan()


def task_of(goal: Goal, classes: int) -> TaskKind | None:
    """Return the task of a network; None if it predicts neither classes nor values."""
    if goal.predicts == "classes":
        return "binary" if classes == 2 else "multiclass"
    return "regression" if goal.predicts == "values" else None


def make_metric(
    function: Callable[[Any, Any], float],
    *,
    name: str | None = None,
    more_is_better: bool = True,
    is_share: bool = False,
) -> PredictionMetric:
    """Make a metric of a function of targets and scores, such as one of ``sklearn.metrics``.

    Scores are the probabilities of class 1, one probability per class, or predicted values; see
    ``docs/metrics.md``. ``name`` is by default that of the function. A share, between 0 and 1, is
    shown in per cent.
    """
    chosen = str(name or getattr(function, "__name__", type(function).__name__))
    if not callable(function):
        raise UnskewError(f"metrics: {function!r} is neither a name nor a function")
    if not chosen.isidentifier() or chosen in _RESERVED or chosen.startswith(POOLED):
        raise UnskewError(
            f"metrics: {chosen!r} cannot be the name of a metric; use us.make_metric(function, "
            "name=...) with letters, digits and underscores"
        )
    return PredictionMetric(Metric(chosen, more_is_better, is_share), function)


def metrics_of_user(specs: Iterable[MetricSpec]) -> tuple[PredictionMetric, ...]:
    """Return the metrics that names alone do not define; check the names of the others."""
    found = []
    for spec in specs:
        if not isinstance(spec, str):
            found.append(spec if isinstance(spec, PredictionMetric) else make_metric(spec))
        elif names_file(spec):
            found.append(make_metric(function_from_file(spec)))
        elif spec not in ("accuracy", "loss"):
            build(FORMULAS, spec.removeprefix(POOLED), "metric")
    return tuple(found)


def plan_metrics(
    metrics: Sequence[MetricSpec],
    metric: MetricSpec | None,
    task: TaskKind | None,
    classes: int,
    network: str,
    known: Iterable[PredictionMetric] = (),
    *,
    files: bool = True,
) -> MetricPlan:
    """Return what is computed for these metrics; raise if the task does not have one of them.

    ``task`` is None for networks that predict neither classes nor values. ``known`` are metrics
    that names may refer to, and ``files`` permits names of functions in files.
    """
    requested: list[MetricSpec] = list(metrics)
    if task == "regression" and not requested:
        requested += REGRESSION_METRICS
    if metric is not None:
        requested.append(metric)
    if task is None and requested:
        raise UnskewError(
            f"metrics: {network} predicts neither classes nor values, so it has only its loss"
        )
    resolver = _Resolver(task, classes, {each.name: each for each in known}, files=files)
    for each in requested:
        resolver.add(each)
    judged = resolver.judged(metric)
    if judged is None and task == "regression":
        judged = next((each.metric for each in resolver.computed.values()), None)
    return MetricPlan(
        tuple(resolver.computed.values()), judged, task, tuple(dict.fromkeys(resolver.specs))
    )


class _Resolver:
    """Collects metrics by name."""

    def __init__(
        self,
        task: TaskKind | None,
        classes: int,
        known: dict[str, PredictionMetric],
        *,
        files: bool,
    ) -> None:
        self._task, self._classes, self._known, self._files = task, classes, known, files
        self.computed: dict[str, PredictionMetric] = {}
        self.specs: list[str] = []

    def add(self, spec: MetricSpec) -> None:
        """Add a metric, or one per class."""
        base = spec.removeprefix(POOLED) if isinstance(spec, str) else spec
        if base == "accuracy" and self._task == "regression":
            raise UnskewError(
                f"metric: a regression has no accuracy; use {joined(self._names(), 'or')}"
            )
        if base in ("accuracy", "loss"):
            return
        for each in self._made(base):
            earlier = self.computed.setdefault(each.name, each)
            if earlier.compute != each.compute:
                raise UnskewError(f"metrics: two of them are named {each.name!r}; rename one")
        made = isinstance(base, str) and not names_file(base)
        self.specs += [str(base)] if made else [each.name for each in self._made(base)]

    def judged(self, spec: MetricSpec | None) -> Metric | None:
        """Return the metric that is judged; None for the default."""
        if spec is None:
            return None
        name = spec.removeprefix(POOLED) if isinstance(spec, str) else spec
        pooled = name != spec
        if name in ("accuracy", "loss"):
            if pooled:
                raise UnskewError(f"metric: {spec} is not recorded; use {name}")
            if name == "accuracy":
                return ACCURACY
            return LOSS if self._task is None else Metric("loss", more_is_better=False)
        found = self._made(name)
        if len(found) != 1:
            raise UnskewError(
                f"metric: {spec} has one value per class; name one, such as recall:label=1"
            )
        metric = found[0].metric
        return metric if not pooled else metric.pooled

    def _made(self, spec: MetricSpec) -> list[PredictionMetric]:
        if isinstance(spec, PredictionMetric):
            return [spec]
        if not isinstance(spec, str):
            return [make_metric(spec)]
        for named in (self._known, self.computed):
            if spec in named:
                return [named[spec]]
        if self._files and names_file(spec):
            return [make_metric(function_from_file(spec))]
        formula = build(FORMULAS, spec, "metric")
        name = parse(spec)[0]
        if self._task not in formula.tasks:
            kind = " or ".join(formula.tasks)
            raise UnskewError(
                f"metric: {name} is for a {kind} target and this one is {self._task}; use "
                f"{joined(self._names(), 'or')}"
            )
        formulas: list[Formula] = [formula]
        if isinstance(formula, Recall):
            if formula.label is None:
                formulas = [Recall(label=c) for c in range(self._classes)]
            elif formula.label >= self._classes:
                raise UnskewError(
                    f"metric: recall: label must be below {self._classes}, the number of classes "
                    f"(got {formula.label})"
                )
        return [PredictionMetric(each.metric(name, self._classes), each) for each in formulas]

    def _names(self) -> list[str]:
        """Return the metrics of the task."""
        return [name for name, formula in FORMULAS.items() if self._task in formula.tasks]


def _value(metric: PredictionMetric, y: NDArray[Any], scores: NDArray[np.float64]) -> float:
    """Return a metric's value; an error names the metric.

    A function of the user gets copies, so that it may work in place.
    """
    given = (y, scores) if isinstance(metric.compute, Formula) else (y.copy(), scores.copy())
    try:
        with importing_beside(metric.compute):
            value = metric.compute(*given)
        if _is_number(value):
            return float(value)
    except Exception as error:
        raise UnskewError(f"metrics: {metric.name} failed: {described(error)}") from error
    shape = getattr(value, "shape", ())
    found = "None" if value is None else type(value).__name__ + (f" of shape {shape}" * bool(shape))
    place = in_brackets(place_of_function(metric.compute))
    raise UnskewError(f"metrics: {metric.name} returned {found}, and must return one number{place}")


def _is_number(value: object) -> bool:
    """Return whether a value is one number, also as an array or tensor without dimensions."""
    return isinstance(value, Real | Decimal) or getattr(value, "shape", None) == ()
