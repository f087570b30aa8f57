"""Who trains the clients of a run and measures on their samples: this machine, or others."""

from typing import Protocol

from unskew.engine.client import ClientContext
from unskew.engine.cohort import Runner
from unskew.engine.round_metrics import Levels, evaluate_locally
from unskew.engine.runners import make_runner
from unskew.runs.checkpoint import Position


class Backend(Protocol):
    """What a run asks of those who hold the clients' samples."""

    @property
    def is_local(self) -> bool:
        """Whether all of it happens in this process, by the runner that the settings name."""

    def runner(self, context: ClientContext, stage: int, cohort: int) -> Runner:
        """Return what trains the clients of a stage, at most so many in a round."""

    def evaluate_on_clients(self, context: ClientContext, position: Position) -> Levels:
        """Measure the global and the personal models on the clients' own test samples."""


class LocalBackend:
    """All clients' samples are here."""

    is_local = True

    def runner(self, context: ClientContext, stage: int, cohort: int) -> Runner:
        """Return the runner that suits the network."""
        del stage
        return make_runner(context, cohort)

    def evaluate_on_clients(self, context: ClientContext, position: Position) -> Levels:
        """Measure here."""
        return evaluate_locally(context, position)
