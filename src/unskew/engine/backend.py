"""Where the clients of a run train and are evaluated: on this machine, or on others."""

from collections.abc import Mapping
from typing import Protocol

from unskew.engine.client import ClientContext
from unskew.engine.cohort import Runner
from unskew.engine.evaluate import Levels, evaluate_locally
from unskew.engine.runners import make_runner
from unskew.runs.checkpoint import Position


class Backend(Protocol):
    """Trains and evaluates on the clients' samples, wherever these are."""

    @property
    def is_local(self) -> bool:
        """Whether everything runs in this process, with the runner that the settings name."""

    @property
    def bound(self) -> float | None:
        """How many times further than the others a client's model may move; None: no limit."""

    def runner(self, context: ClientContext, stage_index: int, cohort: int) -> Runner:
        """Return the runner of a stage, for at most ``cohort`` clients per round."""

    def evaluate_on_clients(self, context: ClientContext, position: Position) -> Levels:
        """Evaluate the global and the personal models on each client's test samples."""

    def evaluate_on_server(self, context: ClientContext, position: Position) -> Mapping[str, float]:
        """Return metrics of the global model that do not come from the common test set."""


class LocalBackend:
    """Trains and evaluates on this machine, which holds all clients' samples."""

    is_local = True
    bound = None

    def runner(self, context: ClientContext, stage_index: int, cohort: int) -> Runner:
        """Return the runner that suits the network."""
        del stage_index
        return make_runner(context, cohort)

    def evaluate_on_clients(self, context: ClientContext, position: Position) -> Levels:
        """Evaluate in this process."""
        return evaluate_locally(context, position)

    def evaluate_on_server(self, context: ClientContext, position: Position) -> Mapping[str, float]:
        """Return nothing: the common test set has all metrics."""
        del context, position
        return {}
