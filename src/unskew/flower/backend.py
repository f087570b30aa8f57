"""What every crew of a Flower federation has: its nodes, and the server's own measuring."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from flwr.app import ArrayRecord, MetricRecord

from unskew.engine.client import ClientContext
from unskew.engine.cohort import Runner
from unskew.engine.evaluate import Levels
from unskew.flower.nodes import Nodes
from unskew.flower.wire import named_tensors, to_arrays
from unskew.runs.checkpoint import Position

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
"""Measures the global model on the server; its round and its arrays are given."""


@dataclass(frozen=True, eq=False)
class FlowerBackend(ABC):
    """Clients of other machines."""

    nodes: Nodes
    bound: float | None
    """How much further than the median a model may move; None: any way."""
    measure: EvaluateFn | None
    told: dict[int, MetricRecord] = field(default_factory=dict, init=False)
    """What was measured on the server, by round."""

    is_local: ClassVar[bool] = False

    @abstractmethod
    def runner(self, context: ClientContext, stage: int, cohort: int) -> Runner:
        """Return what lets nodes train a stage."""

    @abstractmethod
    def tests(self, context: ClientContext, position: Position) -> Levels:
        """Let nodes measure on their own test samples."""

    def evaluate_on_clients(self, context: ClientContext, position: Position) -> Levels:
        """Measure on the server, and let nodes measure."""
        assert position.server is not None
        if self.measure is not None:
            model = context.method.model(position.server)
            arrays = to_arrays(named_tensors(model, context.network.layout))
            found = self.measure(position.round, arrays)
            if found is not None:
                self.told[position.round] = found
        return self.tests(context, position)
