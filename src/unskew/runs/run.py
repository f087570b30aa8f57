"""A run: what happened, as a user reads it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unskew.report.table import Table
from unskew.runs.cost import Cost, Traffic

if TYPE_CHECKING:
    from torch import nn


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

    def __repr__(self) -> str:
        return (
            f"Run({self.method!r} on {self.data!r}, seed={self.seed}, rounds={self.rounds}, "
            f"accuracy={self.accuracy:.4f})"
        )

    @property
    def rounds(self) -> int:
        """How many rounds were played, preparatory stages included."""
        return len(self.metrics)

    @property
    def accuracy(self) -> float:
        """The last accuracy of the global model on the common test set; NaN if never measured."""
        return self.last("global")

    def last(self, level: str, figure: str = "accuracy") -> float:
        """Return the last figure of a level: ``global``, ``local`` or ``personal``."""
        for row in reversed(self.metrics):
            if level in row:
                return _number(row[level][figure])
        return math.nan

    def curve(self, level: str, figure: str = "accuracy") -> tuple[list[int], list[float]]:
        """Return the rounds at which a level was measured, and the figure at each."""
        rows = [row for row in self.metrics if level in row]
        return [row["round"] for row in rows], [_number(row[level][figure]) for row in rows]

    @property
    def cost(self) -> Cost:
        """What the whole run sent, every stage included."""
        return self.cost_of(self.metrics)

    @staticmethod
    def cost_of(rows: Sequence[dict[str, Any]]) -> Cost:
        """Add up what some rounds sent."""
        total = sum((Traffic(**row["traffic"]) for row in rows), Traffic())
        return Cost(**total.to_dict(), rounds=len(rows))

    def cost_to(self, target: float) -> Cost | None:
        """Return the cost until the global accuracy first reached a target; None if never."""
        for i, row in enumerate(self.metrics):
            if "global" in row and row["global"]["accuracy"] >= target:
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
        """Return the evaluations, a row each."""
        rows = []
        for row in self.metrics:
            if not {"global", "local", "personal"} & set(row):
                continue
            loss = row["train_loss"]
            cells = [str(row["round"]), "-" if loss is None else f"{loss:.4f}"]
            for level, figure in _FIGURES:
                cells.append(_percent(row.get(level, {}).get(figure)))
            rows.append(cells)
        columns = ["round", "train loss", "global", "local", "worst client", "personal"]
        return Table(columns, rows, title=f"{self.method} on {self.data}")


_FIGURES = (
    ("global", "accuracy"),
    ("local", "accuracy"),
    ("local", "min"),
    ("personal", "accuracy"),
)


def _number(value: float | None) -> float:
    """Return a figure of the metrics, where None stands for what is not a number."""
    return math.nan if value is None else float(value)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"
