"""Flower's simulation engine on Ray as the engine of a run: virtual nodes on a cluster.

Workers get data, method and network through Ray's store, once each; what Flower sends to them with
every message is the place to find them.
"""

import logging
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from unskew.engine.progress import Watcher
from unskew.engine.setup import TrainingSetup
from unskew.engine.train import run_training
from unskew.errors import UnskewError
from unskew.flower.app import client_app
from unskew.flower.nodes import Nodes
from unskew.flower.registry import NodeRegistry
from unskew.flower.remote import NodeBackend
from unskew.methods import name_of
from unskew.runs.folder import RunFolder
from unskew.runs.run import Run

_START = 600.0
"""Seconds for the virtual nodes to be there."""
_GROUP = 100
"""Messages that are sent at once, at least."""
_ANSWERS = 24 * 3600.0
"""Seconds that answers may take: virtual nodes do not get lost."""


def train_on_ray(
    setup: TrainingSetup,
    folder: RunFolder | None,
    *,
    resume: bool,
    progress: bool | Watcher | None,
    notes: Mapping[str, Any] | None,
) -> Run:
    """Play a run whose clients are virtual nodes, each message a job of a Ray cluster.

    The cluster is the one that ``RAY_ADDRESS`` names, or this machine.
    """
    clients = len(setup.federation)
    if len(setup.federation.test) != clients:
        raise UnskewError(
            f"engine: {name_of(setup.method)} trains in one place, so that there is nothing for "
            "flower-ray to spread; use engine='unskew'"
        )
    runs: list[Run] = []

    def play(grid: Grid, context: Context) -> None:
        del context
        line = _InGroups(grid, max(_GROUP, 8 * workers))
        roster = NodeRegistry(line, _ANSWERS)
        roster.wait_for_nodes(clients, clients, _START)
        if folder is not None:
            roster.remember(folder.path, resume=resume)
        setup.backend = NodeBackend(
            nodes=Nodes(line, roster, setup.settings.quorum, _START, _ANSWERS),
            bound=None,
            measure=None,
            method=name_of(setup.method),
            settings=setup.settings,
        )
        runs.append(run_training(setup, folder, resume=resume, progress=progress, notes=notes))

    server = ServerApp()
    server.main()(play)
    _connect()
    workers = int(ray.cluster_resources().get("CPU", 1) / setup.settings.client_cpus)
    states = None if folder is None else folder.path.resolve() / "nodes"
    settings = setup.settings
    app = _Stored(ray.put((setup.module, setup.federation, setup.method)), states, settings.device)
    run_simulation(
        server_app=server,
        client_app=app,
        num_supernodes=clients,
        backend_config={
            "client_resources": {
                "num_cpus": settings.client_cpus,
                "num_gpus": settings.client_gpus,
            }
        },
    )
    return runs[0]


@dataclass(frozen=True)
class _InGroups:
    """Sends messages in groups: Flower goes through all that wait for each of the nodes."""

    grid: Grid
    size: int

    def get_node_ids(self) -> Iterable[int]:
        return self.grid.get_node_ids()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        waiting = list(messages)
        replies: list[Message] = []
        for first in range(0, len(waiting), self.size):
            group = waiting[first : first + self.size]
            replies += self.grid.send_and_receive(group, timeout=timeout)
        return replies


class _Stored(ClientApp):
    """An app whose parts are in Ray's store; it is pickled as the place to find them."""

    def __init__(self, *place: Any) -> None:
        super().__init__()
        self._place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return _fetch, self._place


@lru_cache(maxsize=1)
def _fetch(reference: Any, states: Path | None, device: Any) -> ClientApp:
    """Return the app on a worker."""
    model, federation, method = ray.get(reference)
    return client_app(model, federation, method, device=device, state=states, noise="seeded")


def _connect() -> None:
    """Join the cluster; workers find the packages that are found here."""
    if not ray.is_initialized():
        path = os.pathsep.join([*sys.path, os.environ.get("PYTHONPATH", "")])
        ray.init(
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"env_vars": {"PYTHONPATH": path}},
        )
