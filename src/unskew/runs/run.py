"""A run: its metrics, costs and model, as a user reads them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.runs.checkpoint import StatesInFolder
from unskew.runs.client_tables import ClientTables
from unskew.runs.cost import Cost, Traffic, add_up
from unskew.runs.frames import history_frame
from unskew.runs.outcomes import outcomes_of
from unskew.runs.remarks import remarks_on
from unskew.stats.metric import ACCURACY, LOSS, Metric
from unskew.utils.tables import Table
from unskew.utils.wording import plural

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import nn

    from unskew.composition.values import Tensors
    from unskew.engine.personal import ClientModels
    from unskew.engine.predictor import Predictor

FinalBy = Literal["mean", "last"]
"""The number that is judged: the mean of the last evaluations, or the last one."""

Level = Literal["global", "local", "personal"]
"""The model and the test that are judged: the global model on the common test or on the clients'
own tests, or the clients' personal models on their own tests."""


@dataclass(eq=False)
class Run:
    """One training run: metrics of every round, traffic, aggregation weights, the model."""

    method: str
    network: str
    data: str
    seed: int
    clients: int
    metrics: list[dict[str, Any]] = field(default_factory=list)
    client_tables: list[dict[str, Any]] | ClientTables = field(default_factory=list)
    """Tables of clients, one per round and evaluated level; see :mod:`unskew.runs.client_tables`.

    Those of a run with a folder are read from it whenever they are used.
    """
    folder: Path | None = None
    model: "nn.Module | None" = None
    """A module with the final weights."""
    states: "Mapping[int, Tensors]" = field(default_factory=dict)
    """The local state of each client, such as sample weights or a personal model's local part.

    It is read from the run's folder if another process executed the run; without a folder, such a
    run has no states.
    """
    client_models: "ClientModels | None" = None
    """The models that clients use; see :meth:`personal_model`."""
    sample_weights: dict[str, Any] | None = None
    """Histograms of sample weights, if clients have them: see :mod:`unskew.runs.sample_weights`."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Settings, data and versions: the content of ``run.json``."""

    def __getstate__(self) -> dict[str, Any]:
        models = self.client_models
        return {
            **self.__dict__,
            "states": {} if self.folder is None else StatesInFolder(self.folder),
            "client_models": None if models is None else models.elsewhere(),
        }

    def __repr__(self) -> str:
        name, level = self.metric.name, self.level
        last = self.last(level, name)
        known = "" if math.isnan(last) else f", {level} {name}={last:.4f}"
        return (
            f"Run({self.method!r} on {self.data!r}, seed={self.seed}, rounds={self.rounds}{known})"
        )

    def _repr_html_(self) -> str:
        from unskew.runs.html import run_html  # noqa: PLC0415 (only notebooks need it)

        return run_html(self)

    @property
    def metric(self) -> Metric:
        """The metric by which the run is judged.

        It is the one that was asked for, else the accuracy, or the loss of a network that has none.
        """
        if "metric" in self.metadata:
            return Metric(**self.metadata["metric"])
        levels = (row[level] for row in self.metrics for level in _LEVELS if level in row)
        first = next(levels, None)
        return LOSS if first is not None and "accuracy" not in first else ACCURACY

    @property
    def has_global_model(self) -> bool:
        """Whether there is a trained global model: methods such as ``local`` have none."""
        known: bool = self.metadata.get("models", {}).get("global", True)
        return known

    @property
    def has_personal_models(self) -> bool:
        """Whether clients have models of their own."""
        if "models" in self.metadata:
            known: bool = self.metadata["models"]["personal"]
            return known
        # Earlier versions did not record it, but what personal models showed.
        name, rows = self.metric.name, [row for row in self.metrics if "personal" in row]
        return any(row["personal"].get(name) != row.get("local", {}).get(name) for row in rows)

    def has_model(self, level: str) -> bool:
        """Return whether there is a trained model to judge at a level.

        Without one, the run has no value at that level.
        """
        return level == "personal" or self.has_global_model

    @property
    def level(self) -> str:
        """The level by which the run is judged: personal if clients have models of their own.

        Otherwise, or if these were not measured, it is global, or local without a common test set.
        """
        return self.level_of(self.metric)

    def level_of(self, metric: Metric) -> str:
        """Return the level by which the run is judged in a metric."""
        if self.has_personal_models and self.is_measured("personal", metric):
            return "personal"
        return self.global_level(metric)

    def is_measured(self, level: str, metric: Metric) -> bool:
        """Return whether a metric was measured at a level."""
        return any(metric.name in row.get(level, {}) for row in self.metrics)

    def global_level(self, metric: Metric) -> str:
        """Return where the global model is judged in a metric: on the common test, or locally."""
        # Networks of others report under their own names; these are judged where they report.
        asked = "metric" in self.metadata or metric.name not in ("accuracy", "loss")
        known = any(
            not asked or metric.name in row["global"] for row in self.metrics if "global" in row
        )
        return "global" if known else "local"

    @property
    def other_metrics(self) -> list[Metric]:
        """The metrics that are shown besides the one that is judged."""
        if "metrics" not in self.metadata:
            return []
        measured = [row[level] for row in self.metrics for level in _LEVELS if level in row]
        accuracy = [ACCURACY] if measured and "accuracy" in measured[0] else []
        others = [*accuracy, *(Metric(**each) for each in self.metadata["metrics"])]
        return [each for each in others if each.name != self.metric.name]

    @property
    def rounds(self) -> int:
        """The number of completed rounds, including preparatory stages."""
        return len(self.metrics)

    @property
    def task_rounds(self) -> int:
        """The number of completed rounds of the task itself, the last stage."""
        return len(self.task_metrics)

    @property
    def task_metrics(self) -> list[dict[str, Any]]:
        """The metrics of the task's rounds, without those of preparatory stages."""
        return [row for row in self.metrics if row["stage"] == TASK]

    @property
    def failed_rounds(self) -> int:
        """The number of the task's rounds that left the model as it was."""
        return sum("kept_model" in row for row in self.task_metrics)

    @property
    def is_untrained(self) -> bool:
        """Whether no round of the task changed the model, so its metrics are the initial model's.

        This happens if training diverged completely, or too few clients could be used.
        """
        return 0 < self.task_rounds == self.failed_rounds

    @property
    def requested_rounds(self) -> int | None:
        """The number of rounds of the task that were requested; None if it is unknown."""
        rounds = self.metadata.get("configuration", {}).get("rounds")
        return rounds if isinstance(rounds, int) else None

    @property
    def is_finished(self) -> bool:
        """Whether the run has all the rounds that were requested."""
        return self.requested_rounds is None or self.task_rounds >= self.requested_rounds

    @property
    def remarks(self) -> list[str]:
        """Remarks that explain the result, derived from the diagnostics of the rounds."""
        unfinished = [] if self.is_finished else [unfinished_text([self])]
        outcomes = [outcome.sentence for outcome in outcomes_of([self], self.level, self.metric)]
        missing = [] if self.has_global_model else [NO_GLOBAL_MODEL]
        return [*unfinished, *remarks_on(self.task_metrics), *missing, *outcomes]

    @property
    def predictor(self) -> "Predictor":
        """The final models as a predictor of raw rows: ``run.predictor.predict("new.csv")``.

        It works for runs in memory and for runs read from their folder, unless the network or the
        method is user-defined. Where clients have models of their own, name one:
        ``predict("new.csv", client="Delft")``.
        """
        # The engine is above this package, so it is imported when it is needed.
        found: Predictor = import_module("unskew.engine.run_predictor").predictor_of(self)
        return found

    def personal_model(self, client: str | int) -> "nn.Module":
        """Return a module with the final weights of the model that a client uses."""
        return self.predictor.module_of(client)

    @property
    def accuracy(self) -> float:
        """The last accuracy of the global model; NaN if never measured, or if there is none.

        It is measured on the common test set or, without one, is the mean over the clients' test
        sets.
        """
        return self.last(self.global_level(self.metric))

    def last(self, level: str, metric: str = "accuracy") -> float:
        """Return the last value of a metric at a level: ``global``, ``local`` or ``personal``.

        Methods with several models also have the level ``outputs``, the mean of their models'
        values on the common test set.
        """
        rows = self._rows(self.metrics, level)
        return _number(rows[-1][level].get(metric)) if rows else math.nan

    def final_value(self, level: str, metric: str = "accuracy", final: FinalBy = "mean") -> float:
        """Return the number by which a run is judged: by default the mean of its last evaluations.

        The mean is over the last tenth of the task's evaluations, at least five (all, if there are
        fewer): under skew a single round depends much on its cohort. ``final="last"`` takes the
        last evaluation.
        """
        values = self.final_values(level, metric)
        if final == "last" or not values:
            return self.last(level, metric)
        return float(np.mean(values))

    def final_values(self, level: str, metric: str = "accuracy") -> list[float]:
        """Return the values at the last evaluations, whose mean is the :meth:`final_value`."""
        rows = self._rows(self.task_metrics, level)
        return [_number(row[level].get(metric)) for row in rows[-final_evaluations(len(rows)) :]]

    def curve(self, level: str, metric: str = "accuracy") -> tuple[list[int], list[float]]:
        """Return the rounds at which a level was evaluated, and the metric at each of them."""
        rows = self._rows(self.metrics, level)
        return [row["round"] for row in rows], [_number(row[level].get(metric)) for row in rows]

    @property
    def cost(self) -> Cost:
        """The traffic of the whole run, including all stages."""
        return self.cost_of(self.metrics)

    @staticmethod
    def cost_of(rows: Sequence[dict[str, Any]]) -> Cost:
        """Return the total traffic of the given rounds."""
        traffic = add_up([Traffic(**row["traffic"]) for row in rows])
        return Cost(**traffic.to_dict(), rounds=len(rows))

    def cost_to(
        self, target: float, level: str = "global", metric: Metric | None = None
    ) -> Cost | None:
        """Return the cost until the metric of a level first reached a target; None if never."""
        metric = metric or self.metric
        for i, row in enumerate(self.metrics if self.has_model(level) else []):
            if level in row and metric.reaches(_number(row[level].get(metric.name)), target):
                return self.cost_of(self.metrics[: i + 1])
        return None

    def _rows(self, rows: list[dict[str, Any]], level: str) -> list[dict[str, Any]]:
        """Return the rows with values of a level; none if it has no model."""
        return [row for row in rows if level in row] if self.has_model(level) else []

    @property
    def weights(self) -> NDArray[np.float64]:
        """The aggregation weight of each client: rounds x clients, NaN where it took no part.

        In rounds of more than 1,000 clients, all but 101 of them are NaN.
        """
        tables = [table for table in self.client_tables if table["kind"] == "round"]
        matrix = np.full((len(tables), self.clients), np.nan)
        for row, table in zip(matrix, tables, strict=True):
            values = [np.nan if weight is None else weight for weight in table["weight"]]
            row[table["client"]] = values
        return matrix

    def table(self) -> Table:
        """Return one row per evaluation, or one per round if there were no evaluations."""
        rows = []
        name, worst = self.metric.name, self.metric.worst
        columns = {
            "global": ("global", name), "local": ("local", name),
            "worst client": (level_of_clients(self.level), worst),
            "personal": ("personal", name),
        }  # fmt: skip
        evaluated = self._evaluated()
        if evaluated and self.global_level(self.metric) == "local":
            del columns["global"]
        shown = evaluated or self.metrics
        for row in shown:
            loss = row["train_loss"]
            cells = [str(row["round"]), "-" if loss is None else f"{loss:.4f}"]
            for level, metric in columns.values():
                known = row.get(level, {}) if self.has_model(level) else {}
                cells.append(self.metric.text(known.get(metric)))
            rows.append(cells)
        others = self.other_metrics or self._further_losses()
        for cells, row in zip(rows, shown, strict=True):
            cells += [other.text(row.get(self.level, {}).get(other.name)) for other in others]
        # Without its name, another metric would be taken for an accuracy.
        named = {} if name == "accuracy" else {self.level: f"{self.level} {name}"}
        heads = ["round", "train loss", *(named.get(head, head) for head in columns)]
        heads += [other.name for other in others]
        title = f"{self.method} on {self.data}"
        return Table(heads, rows, title=title, notes=self.remarks)

    def history(self) -> "DataFrame":
        """Return a pandas DataFrame with one row per round: metrics, traffic and seconds.

        Metrics of an evaluation level are columns such as ``global_accuracy`` and ``local_min``,
        NaN in rounds that were not evaluated.
        """
        return history_frame(self)

    @property
    def is_evaluated(self) -> bool:
        """Whether anything was measured on test samples."""
        return bool(self._evaluated())

    def _evaluated(self) -> list[dict[str, Any]]:
        return [row for row in self.metrics if set(_LEVELS) & set(row)]

    def _further_losses(self) -> list[Metric]:
        """Return further metrics of a network without accuracy, such as a VAE's terms."""
        if self.metric is not LOSS:
            return []
        common: dict[str, Any] = next(
            (row["global"] for row in self.metrics if "global" in row), {}
        )
        return [Metric(name, more_is_better=False) for name in common if name != LOSS.name]


TASK = "task"
"""The name of the last stage, which trains what was asked for."""

_LEVELS = ("global", "local", "personal")


NO_GLOBAL_MODEL = "has no trained global model, so only its personal ones are judged"
"""A remark on a method whose server has no model of use."""


def level_of_clients(level: str) -> str:
    """Return the level at which clients have values, such as the worst one, beside a level."""
    return "personal" if level == "personal" else "local"


def final_evaluations(evaluations: int) -> int:
    """Return how many of the last evaluations are averaged: a tenth, at least five."""
    return min(evaluations, max(5, math.ceil(evaluations / 10)))


def unfinished_text(runs: "Sequence[Run]") -> str:
    """Return a remark on the runs of one method that are not finished."""
    rounds = ", ".join(
        f"seed {run.seed} has {run.task_rounds} of {plural(run.requested_rounds or 0, 'round')}"
        for run in runs
    )
    return f"unfinished: {rounds}"


def _number(value: float | None) -> float:
    """Return a recorded value, with None for a missing one as NaN."""
    return math.nan if value is None else float(value)
