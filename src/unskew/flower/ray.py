"""Runs on Flower's simulation engine, with virtual nodes on a Ray cluster.

Each worker fetches data, method and network once from Ray's object store; the messages that Flower
sends to it contain only a reference to them.
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

from unskew.engine.progress import RoundCallback
from unskew.engine.round_loop import run_training
from unskew.engine.setup import TrainingSetup
from unskew.errors import UnskewError
from unskew.flower.app import client_app
from unskew.flower.greeting import Admission
from unskew.flower.nodes import Nodes
from unskew.flower.registry import NodeRegistry
from unskew.flower.remote import NodeBackend
from unskew.flower.requirements import check_metrics_of_nodes
from unskew.runs.file_names import NODE_STATES
from unskew.runs.ownership import check_run_folder
from unskew.runs.run import Run

_START = 600.0
"""Seconds to wait for the virtual nodes."""
_MIN_GROUP = 100
"""The smallest number of messages that are sent at once."""
_REPLY_TIMEOUT = 24 * 3600.0
"""Seconds to wait for replies; long, because virtual nodes do not disconnect."""


def train_on_ray(
    setup: TrainingSetup,
    out: str | Path | None,
    *,
    resume: bool,
    progress: bool | RoundCallback | None,
    notes: Mapping[str, Any] | None,
) -> Run:
    """Execute a run whose clients are virtual nodes; each message is a job of a Ray cluster.

    The cluster is the one given by ``RAY_ADDRESS``, or this machine.
    """
    clients = len(setup.federation)
    if len(setup.federation.test) != clients:
        raise UnskewError(
            f"engine: {setup.method.spec} trains in one place, which flower-ray cannot "
            "distribute; use engine='unskew'"
        )
    check_metrics_of_nodes(setup.metrics)
    if out is not None:
        check_run_folder(Path(out))
    runs: list[Run] = []

    def main(grid: Grid, context: Context) -> None:
        del context
        link = _GroupedGrid(grid, max(_MIN_GROUP, 8 * workers))
        registry = NodeRegistry(link, _REPLY_TIMEOUT, Admission(size_limit=None))
        registry.wait_for_nodes(clients, clients, _START)
        if out is not None:
            registry.save(Path(out), resume=resume)
        setup.backend = NodeBackend(
            nodes=Nodes(link, registry, setup.settings.quorum, _START, _REPLY_TIMEOUT),
            bound=None,
            evaluate_fn=None,
            method=setup.method.spec,
            settings=setup.settings,
        )
        runs.append(run_training(setup, out, resume=resume, progress=progress, notes=notes))

    server = ServerApp()
    server.main()(main)
    _connect()
    workers = int(ray.cluster_resources().get("CPU", 1) / setup.settings.client_cpus)
    states = None if out is None else Path(out).resolve() / NODE_STATES
    settings = setup.settings
    app = _StoredApp(
        ray.put((setup.module, setup.federation, setup.method, setup.metrics.computed)),
        states,
        settings.device,
    )
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
class _GroupedGrid:
    """Sends messages in groups, because Flower scans all waiting messages for every node."""

    grid: Grid
    size: int

    def get_node_ids(self) -> Iterable[int]:
        return self.grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        return self.grid.get_nodes()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        pending = list(messages)
        replies: list[Message] = []
        for first in range(0, len(pending), self.size):
            group = pending[first : first + self.size]
            replies += self.grid.send_and_receive(group, timeout=timeout)
        return replies


class _StoredApp(ClientApp):
    """An app whose parts are in Ray's object store; it is pickled as a reference to them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__()
        self._arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_app, self._arguments


@lru_cache(maxsize=1)
def _load_app(reference: Any, states: Path | None, device: Any) -> ClientApp:
    """Create the app on a worker."""
    model, federation, method, metrics = ray.get(reference)
    return client_app(
        model, federation, method, device=device, state=states, noise="seeded", metrics=metrics
    )


def _connect() -> None:
    """Connect to the cluster; workers import packages from the paths of this process."""
    if not ray.is_initialized():
        path = os.pathsep.join([*sys.path, os.environ.get("PYTHONPATH", "")])
        ray.init(
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"env_vars": {"PYTHONPATH": path}},
        )
