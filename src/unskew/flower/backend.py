"""The backend of a Flower federation: its nodes, and the evaluation on the server."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from logging import WARNING
from typing import ClassVar

from flwr.app import ArrayRecord, MetricRecord, RecordDict

from unskew.engine.client import ClientContext
from unskew.engine.cohort import Runner
from unskew.engine.evaluate import Levels
from unskew.flower.metric_names import with_standard_names
from unskew.flower.nodes import Nodes
from unskew.flower.transport import Replies
from unskew.flower.wire import log, named_tensors, to_arrays
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
    _evaluated: list[int] = field(default_factory=lambda: [0, 0], init=False)

    @property
    def evaluated(self) -> tuple[int, int]:
        """How many nodes answered the last evaluation, and how many were asked."""
        return self._evaluated[0], self._evaluated[1]

    def ask_to_evaluate(self, message_type: str, contents: Mapping[int, RecordDict]) -> Replies:
        """Send a request for evaluation to nodes, and count the replies."""
        replies = self.nodes.request(message_type, contents, wait_for_quorum=False)
        self._evaluated[:] = len(replies.contents), len(contents)
        for why in dict.fromkeys(replies.refused.values()):
            log(WARNING, "unskew: not evaluated: %s", why)
        return replies

    is_local: ClassVar[bool] = False

    @abstractmethod
    def runner(self, context: ClientContext, stage_index: int, cohort: int) -> Runner:
        """Return the runner that trains a stage on the nodes."""

    @abstractmethod
    def evaluate_on_nodes(self, context: ClientContext, position: Position) -> Levels:
        """Evaluate on the nodes' test samples."""

    def evaluate_on_clients(self, context: ClientContext, position: Position) -> Levels:
        """Evaluate on the nodes."""
        return self.evaluate_on_nodes(context, position)

    def evaluate_on_server(self, context: ClientContext, position: Position) -> Mapping[str, float]:
        """Return the numbers that the app's ``evaluate_fn`` measures, under their usual names."""
        assert position.server is not None
        if self.evaluate_fn is None:
            return {}
        model = context.method.model(position.server)
        arrays = to_arrays(named_tensors(model, context.network.layout))
        metrics = self.evaluate_fn(position.round, arrays)
        if metrics is None:
            return {}
        self.server_metrics[position.round] = metrics
        numbers = {name: each for name, each in metrics.items() if isinstance(each, int | float)}
        return with_standard_names(numbers)
