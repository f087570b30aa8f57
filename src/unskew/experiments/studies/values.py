"""The values of a study: one number per case, method, measure and seed."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from unskew.experiments.studies.measures import (
    effective_rounds,
    exchange_of,
    parameter_bias,
    seconds_per_round,
)
from unskew.experiments.studies.study_scheduler import StudyRuns
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten
from unskew.runs.run import Run
from unskew.stats.judging import BySeed

Cells = dict[str, dict[str, dict[str, dict[int, float]]]]
"""Values by case, label, measure and seed, in the units of the papers."""

_LAST = 10
"""The number of final rounds whose evaluations are averaged."""


def cells_of(study_runs: StudyRuns) -> Cells:
    """Compute all measures of the study from its runs."""
    study = study_runs.study
    cells: Cells = {}
    for case in study.cases:
        found: dict[str, dict[str, dict[int, float]]] = {label: {} for label in case.methods}
        for name in study.file.measures:
            for label in case.methods:
                measure = RUN_MEASURES.get(name)
                if measure is not None:
                    runs = study_runs.of(case.name, label)
                    found[label][name] = {run.seed: measure(run) for run in runs}
        for name, values in _relative_measures(study_runs, case.name).items():
            if name in study.file.measures:
                for label, by_seed in values.items():
                    found[label][name] = by_seed
        cells[case.name] = found
    return cells


def mean_and_sd(values: BySeed) -> tuple[float, float]:
    """Return mean and standard deviation over seeds; NaN where there are too few."""
    known = [value for value in values.values() if not math.isnan(value)]
    if not known or len(known) < len(values):
        return (float(np.mean(known)) if known else math.nan), math.nan
    return float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else math.nan


def _relative_measures(study_runs: StudyRuns, case: str) -> dict[str, dict[str, dict[int, float]]]:
    """Return the measures that relate methods: effective rounds, their cost, and bias."""
    study = study_runs.study
    runs: dict[int, dict[str, Run]] = {}
    for label in study.case(case).methods:
        for run in study_runs.of(case, label):
            runs.setdefault(run.seed, {})[label] = run
    found: dict[str, dict[str, dict[int, float]]] = {}

    def add(measure: str, label: str, seed: int, value: float) -> None:
        found.setdefault(measure, {}).setdefault(label, {})[seed] = value

    for seed, by_label in runs.items():
        for measure, values in _effective(study.file.ours, by_label).items():
            for label, value in values.items():
                add(measure, label, seed, value)
        for label, value in _biases(study.file.reference, by_label).items():
            add("bias", label, seed, value)
    return found


def _effective(ours: Sequence[str], runs: Mapping[str, Run]) -> dict[str, dict[str, float]]:
    """Return effective rounds and costs, each version of our method against the rivals alone."""
    found: dict[str, dict[str, float]] = {}
    for version in ours:
        compared = {
            label: run for label, run in runs.items() if label == version or label not in ours
        }
        if version not in compared:
            continue
        exchanges = {label: exchange_of(run) for label, run in compared.items()}
        before = {label: float(exchange.rounds_before) for label, exchange in exchanges.items()}
        curves = {label: run.curve("personal", run.metric.name) for label, run in compared.items()}
        rounds = effective_rounds(curves, version, before)
        cost = {label: exchanges[label].cost(value) for label, value in rounds.items()}
        for name, values in (("rounds", rounds), ("cost", cost), ("rounds-before", before)):
            found.setdefault(name, {}).update(values)
    return found


def _biases(reference: str | None, runs: Mapping[str, Run]) -> dict[str, float]:
    if reference is None or reference not in runs or runs[reference].model is None:
        return {}
    module = runs[reference].model
    assert module is not None
    layout = FunctionalModel(module).layout
    target = flatten(module, layout)
    found = {}
    for label, run in runs.items():
        other = FunctionalModel(run.model).layout if run.model is not None else None
        same = other is not None and [e.name for e in other] == [e.name for e in layout]
        if label != reference and same and run.model is not None:
            found[label] = parameter_bias(flatten(run.model, layout), target, layout)
    return found


def _last(level: str, metric: str = "accuracy") -> Callable[[Run], float]:
    return lambda run: 100 * run.last(level, metric)


def _outputs(run: Run) -> float:
    """Return the mean over the models of a method; with a single model, the global one."""
    level = "outputs" if any("outputs" in row for row in run.metrics) else "global"
    return 100 * run.last(level)


def _mean_of_last(level: str) -> Callable[[Run], float]:
    def measure(run: Run) -> float:
        rounds, values = run.curve(level)
        late = [v for round_, v in zip(rounds, values, strict=True) if round_ > rounds[-1] - _LAST]
        return 100 * float(np.mean(late)) if late else math.nan

    return measure


def _best(run: Run) -> float:
    return 100 * max(run.curve("global")[1], default=math.nan)


def _loss_at(round_: int) -> Callable[[Run], float]:
    def measure(run: Run) -> float:
        return dict(zip(*run.curve("global", "loss"), strict=True)).get(round_, math.nan)

    return measure


def _train_loss(run: Run) -> float:
    known = [row["train_loss"] for row in run.metrics if row["stage"] == "task"]
    return math.nan if not known or known[-1] is None else float(known[-1])


def _made_loss(run: Run) -> float:
    losses = [row.get("diagnostics", {}).get("validation_loss") for row in run.metrics]
    known = [value for value in losses if value is not None]
    return min(known) if known else math.nan


RUN_MEASURES: dict[str, Callable[[Run], float]] = {
    "global": _last("global"),
    "outputs": _outputs,
    "global-last10": _mean_of_last("global"),
    "global-best": _best,
    "local": _last("local"),
    "local-last10": _mean_of_last("local"),
    "personal": _last("personal"),
    "personal-last10": _mean_of_last("personal"),
    "worst": _last("local", "min"),
    "local-sd": _last("local", "sd"),
    "loss": lambda run: run.last("global", "loss"),
    "loss@2": _loss_at(2),
    "train-loss": _train_loss,
    "seconds": seconds_per_round,
    "made-loss": _made_loss,
}
"""The measures of a single run, by name."""
