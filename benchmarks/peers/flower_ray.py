# mypy: ignore-errors
"""Rounds of Flower: its FedAvg on the simulation runtime, with clients as Ray actors.

Differences from unskew's work:

- BatchNorm's running statistics (W3) and its counter of batches are averaged like every tensor.
- Parameters are serialised from the server to each client and back, as on a real network.
- Its runtime and its server poll for messages every tenth of a second.

To Flower's advantage, an actor keeps the samples between messages. Layouts differ in the CPUs that
a client reserves: they determine how many actors share the cores, and each actor computes with as
many threads.
"""

import os
import time

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.flower_client import client_app
from benchmarks.peers.layouts import CHOSEN, Layout, main

CORES = os.cpu_count()
LONGEST_ROUND = 120.0
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # by default other programs on the machine come first
}
PROCESSORS = {f"num_cpus={share:g}": share for share in (0.5, 1, CORES)}
LAYOUTS = {
    name: Layout({**QUIET, "OMP_NUM_THREADS": str(max(1, int(share)))})
    for name, share in PROCESSORS.items()
}


class Timed(FedAvg):
    """FedAvg that records when rounds end and checks that every client replied."""

    def __init__(self, work):
        super().__init__(
            fraction_train=work.cohort / work.clients,
            fraction_evaluate=0.0,
            # If the first round starts before all nodes are registered, the fraction is too small.
            min_train_nodes=work.cohort,
            min_available_nodes=work.clients,
        )
        self.cohort = work.cohort
        self.ends = []

    def aggregate_train(self, server_round, replies):
        """Average the replies and record the time."""
        replies = list(replies)
        averaged = super().aggregate_train(server_round, replies)
        errors = [reply.error.reason for reply in replies if reply.has_error()]
        if errors or len(replies) < self.cohort:
            reason = errors[0] if errors else f"{len(replies)} of {self.cohort} clients replied"
            raise RuntimeError(f"round {server_round}: {reason}")
        self.ends.append(time.perf_counter())
        return averaged


def time_rounds(work, rounds):
    """Time rounds, each from the end of the previous round."""
    from benchmarks.peers.torch_parts import network_of

    strategy = Timed(work)
    server_app = ServerApp()

    @server_app.main()
    def serve(grid, context):
        del context
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(network_of(work).state_dict()),
            num_rounds=rounds + work.warm_up,
            timeout=LONGEST_ROUND,
            train_config=ConfigRecord({"title": work.title}),
        )

    layout = os.environ[CHOSEN]
    run_simulation(
        server_app,
        client_app,
        num_supernodes=work.clients,
        backend_config={
            "client_resources": {"num_cpus": PROCESSORS[layout], "num_gpus": 0.0},
            "init_args": {"num_cpus": CORES, "log_to_driver": False},
        },
    )
    return {layout: np.diff(strategy.ends)[work.warm_up - 1 :].tolist()}


if __name__ == "__main__":
    main("benchmarks.peers.flower_ray", LAYOUTS, time_rounds)
