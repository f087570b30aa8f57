# mypy: ignore-errors
"""Rounds of pfl: FederatedAveraging on its SimulatedBackend, in one process or one per core.

Differences from unskew's work:

- pfl does not shuffle a client's samples: batches are built once and used in the same order.
- Only parameters are reset and averaged. BatchNorm's running statistics (W3) continue from client
  to client, separately in each process.
- A cohort is sampled with replacement, so a client may be in it twice.
- It trains clients in place, one after another, and sums differences from the global parameters.

Workers are started by torchrun, as pfl's documentation recommends; each trains its share of a
cohort.
"""

import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

from benchmarks.peers.layouts import CHOSEN, Layout, main

CORES = os.cpu_count()
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={CORES}")

LAYOUTS = {
    "1 process, 1 thread": Layout({"OMP_NUM_THREADS": "1"}),
    f"1 process, {CORES} threads": Layout({"OMP_NUM_THREADS": str(CORES)}),
    f"{CORES} processes, 1 thread": Layout({"OMP_NUM_THREADS": "1"}, TORCHRUN),
}


def with_loss(network):
    """Add the two methods that pfl calls to a network."""
    network.loss = lambda x, y: F.cross_entropy(network(x), y)
    network.metrics = lambda _x, _y: {}
    return network


class Stopwatch(TrainingProcessCallback):
    """Records when rounds end."""

    def __init__(self):
        self.ends = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """Record the time."""
        del aggregate_metrics, model, central_iteration
        self.ends.append(time.perf_counter())
        return False, Metrics()


def federation(inputs, labels):
    """Return the clients, with their samples as tensors in memory."""
    clients = [PyTorchTensorDataset(samples) for samples in zip(inputs, labels, strict=True)]
    sampler = get_user_sampler("random", range(len(clients)))
    return FederatedDataset(clients.__getitem__, sampler)


def time_rounds(work, rounds):
    """Time rounds, each from the end of the previous round."""
    from benchmarks.peers.torch_parts import network_of, samples_of, training_dtype

    np.random.seed(0)  # noqa: NPY002 (pfl samples from numpy's global state, the same in each worker)
    torch.manual_seed(0)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    clients = federation(*samples_of(work))
    network = with_loss(network_of(work))
    stopwatch = Stopwatch()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds + work.warm_up,
            evaluation_frequency=rounds + work.warm_up,
            train_cohort_size=work.cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(clients, clients, [WeightByDatapoints()]),
        PyTorchModel(
            network,
            torch.optim.SGD,
            torch.optim.SGD(network.parameters(), lr=1.0),
            amp_dtype=training_dtype(),
        ),
        NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=work.lr, local_batch_size=work.batch
        ),
        callbacks=[stopwatch],
        send_metrics_to_platform=False,
    )
    return {os.environ[CHOSEN]: np.diff(stopwatch.ends)[work.warm_up - 1 :].tolist()}


if __name__ == "__main__":
    main("benchmarks.peers.pfl_torch", LAYOUTS, time_rounds)
