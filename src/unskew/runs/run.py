"""A run: what happened, as a user reads it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unskew.runs.cost import Cost, Traffic, add_up
from unskew.stats.metric import ACCURACY, LOSS, Metric
from unskew.utils.tables import Table

if TYPE_CHECKING:
    from torch import nn

    from unskew.methods.common.base import Tensors


@dataclass(eq=False)
class Run:
    """One training: metrics of every round, what was sent, who counted how much, the model."""

    method: str
    network: str
    data: str
    seed: int
    clients: int
    metrics: list[dict[str, Any]] = field(default_factory=list)
    client_tables: list[dict[str, Any]] = field(default_factory=list)
    folder: Path | None = None
    model: "nn.Module | None" = None
    """A module with the final weights."""
    states: "Mapping[int, Tensors]" = field(default_factory=dict)
    """What each client kept to itself, such as sample weights or a personal model's own part.

    It stays where it was trained: a run that another process played comes without.
    """
    sample_weights: dict[str, Any] | None = None
    """How clients weigh their samples, where they do: see :mod:`unskew.runs.sample_weights`."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What was asked, of which data, with which versions: the content of ``run.json``."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "states": {}}

    def __repr__(self) -> str:
        return (
            f"Run({self.method!r} on {self.data!r}, seed={self.seed}, rounds={self.rounds}, "
            f"{self.metric.name}={self.last('global', self.metric.name):.4f})"
        )

    @property
    def metric(self) -> Metric:
        """The figure the run is judged by: accuracy, or the loss of a network without one."""
        levels = [row[level] for row in self.metrics for level in _LEVELS if level in row]
        return LOSS if levels and "accuracy" not in levels[0] else ACCURACY

    @property
    def rounds(self) -> int:
        """How many rounds were played, preparatory stages included."""
        return len(self.metrics)

    @property
    def task_rounds(self) -> int:
        """How many rounds of the task itself were played: those of the last stage."""
        return sum(row["stage"] == self.metrics[-1]["stage"] for row in self.metrics)

    @property
    def accuracy(self) -> float:
        """The last accuracy of the global model on the common test set; NaN if never measured."""
        return self.last("global")

    def last(self, level: str, metric: str = "accuracy") -> float:
        """Return the last figure of a level: ``global``, ``local`` or ``personal``.

        Methods with several models have ``outputs`` too, the mean of what each of them reaches on
        the common test.
        """
        for row in reversed(self.metrics):
            if level in row:
                return _number(row[level].get(metric))
        return math.nan

    def curve(self, level: str, metric: str = "accuracy") -> tuple[list[int], list[float]]:
        """Return the rounds at which a level was measured, and the figure at each."""
        rows = [row for row in self.metrics if level in row]
        return [row["round"] for row in rows], [_number(row[level].get(metric)) for row in rows]

    @property
    def cost(self) -> Cost:
        """What the whole run sent, every stage included."""
        return self.cost_of(self.metrics)

    @staticmethod
    def cost_of(rows: Sequence[dict[str, Any]]) -> Cost:
        """Add up what some rounds sent."""
        traffic = add_up([Traffic(**row["traffic"]) for row in rows])
        return Cost(**traffic.to_dict(), rounds=len(rows))

    def cost_to(self, target: float, level: str = "global") -> Cost | None:
        """Return the cost until the figure of a level first reached a target; None if never."""
        metric = self.metric
        for i, row in enumerate(self.metrics):
            if level in row and metric.reaches(_number(row[level].get(metric.name)), target):
                return self.cost_of(self.metrics[: i + 1])
        return None

    @property
    def weights(self) -> NDArray[np.float64]:
        """The weight of each client in each round: rounds x clients, NaN where it took no part."""
        tables = [table for table in self.client_tables if table["kind"] == "round"]
        matrix = np.full((len(tables), self.clients), np.nan)
        for row, table in zip(matrix, tables, strict=True):
            values = [np.nan if weight is None else weight for weight in table["weight"]]
            row[table["client"]] = values
        return matrix

    def table(self) -> Table:
        """Return the evaluations, a row each; the rounds, if there was nothing to evaluate on."""
        rows = []
        name, worst = self.metric.name, self.metric.worst
        shown = self._evaluated() or self.metrics
        for row in shown:
            loss = row["train_loss"]
            cells = [str(row["round"]), "-" if loss is None else f"{loss:.4f}"]
            columns = (("global", name), ("local", name), ("local", worst), ("personal", name))
            for level, metric in columns:
                cells.append(self.metric.text(row.get(level, {}).get(metric)))
            rows.append(cells)
        others = self._other_measures()
        for cells, row in zip(rows, shown, strict=True):
            cells += [self.metric.text(row.get("global", {}).get(other)) for other in others]
        heads = ["round", "train loss", "global", "local", "worst client", "personal"]
        return Table(heads + others, rows, title=f"{self.method} on {self.data}")

    def _evaluated(self) -> list[dict[str, Any]]:
        return [row for row in self.metrics if set(_LEVELS) & set(row)]

    def _other_measures(self) -> list[str]:
        """Name what else is measured of a network that is judged by its loss."""
        if self.metric is ACCURACY:
            return []
        common: dict[str, Any] = next(
            (row["global"] for row in self.metrics if "global" in row), {}
        )
        return [name for name in common if name != self.metric.name]


_LEVELS = ("global", "local", "personal")


def _number(value: float | None) -> float:
    """Return a figure of the metrics, where None stands for what is not a number."""
    return math.nan if value is None else float(value)
