"""The backend of a Flower federation: its nodes, and the evaluation on the server."""

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
"""Evaluates the global model on the server, given the round and the model's arrays."""


@dataclass(frozen=True, eq=False)
class FlowerBackend(ABC):
    """Trains and evaluates clients on the nodes of a Flower federation."""

    nodes: Nodes
    bound: float | None
    """How many times further than the median a model may move; None: no limit."""
    evaluate_fn: EvaluateFn | None
    server_metrics: dict[int, MetricRecord] = field(default_factory=dict, init=False)
    """The results of ``evaluate_fn``, by round."""

    is_local: ClassVar[bool] = False

    @abstractmethod
    def runner(self, context: ClientContext, stage_index: int, cohort: int) -> Runner:
        """Return the runner that trains a stage on the nodes."""

    @abstractmethod
    def evaluate_on_nodes(self, context: ClientContext, position: Position) -> Levels:
        """Evaluate on the nodes' test samples."""

    def evaluate_on_clients(self, context: ClientContext, position: Position) -> Levels:
        """Evaluate on the server with ``evaluate_fn``, then on the nodes."""
        assert position.server is not None
        if self.evaluate_fn is not None:
            model = context.method.model(position.server)
            arrays = to_arrays(named_tensors(model, context.network.layout))
            metrics = self.evaluate_fn(position.round, arrays)
            if metrics is not None:
                self.server_metrics[position.round] = metrics
        return self.evaluate_on_nodes(context, position)
