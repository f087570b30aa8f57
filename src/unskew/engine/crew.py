"""Who trains the clients of a run and measures on their samples: this machine, or others."""

from typing import Protocol

import torch

from unskew.data.federation import Federation
from unskew.engine.choose import example, make_runner, resolve_runner
from unskew.engine.client import Workshop
from unskew.engine.cohort import Runner
from unskew.engine.record import Tests, tests_here
from unskew.engine.settings import Settings
from unskew.network import Network
from unskew.runs.checkpoint import Position


class Crew(Protocol):
    """What a run asks of those who hold the clients' samples."""

    def arithmetic(
        self, network: Network, federation: Federation, settings: Settings, device: torch.device
    ) -> str:
        """Say in which order sums are taken: "vectorised" or "per client"."""

    def runner(self, shop: Workshop, stage: int, cohort: int) -> Runner:
        """Return what trains the clients of a stage, at most so many in a round."""

    def own_tests(self, shop: Workshop, position: Position) -> Tests | None:
        """Measure the global and the personal models on the clients' own test samples."""


class Here:
    """All clients' samples are here."""

    def arithmetic(
        self, network: Network, federation: Federation, settings: Settings, device: torch.device
    ) -> str:
        """Say in which order sums are taken."""
        runner = resolve_runner(network, settings, device, example(federation))
        return "vectorised" if runner == "vectorised" else "per client"

    def runner(self, shop: Workshop, stage: int, cohort: int) -> Runner:
        """Return the runner that suits the network."""
        del stage
        return make_runner(shop, cohort)

    def own_tests(self, shop: Workshop, position: Position) -> Tests:
        """Measure here."""
        return tests_here(shop, position)
