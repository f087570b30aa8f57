# mypy: ignore-errors
"""The client of ``flower_ray``, in a separate module that Ray's actors import by name.

As in Flower's PyTorch quickstart, each message builds a network and uses a DataLoader (not with
PEERS_TUNED=1).
"""

import os
from functools import lru_cache

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from benchmarks.workloads import WORKLOADS

client_app = ClientApp()


@lru_cache
def _workload_with_samples(title):
    """Return a workload and its samples, once per actor."""
    from benchmarks.peers.torch_parts import samples_of

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    work = next(work for work in WORKLOADS.values() if work.title == title)
    return work, *samples_of(work)


@client_app.train()
def train(message, context):
    """Train one epoch on a client's samples."""
    from benchmarks.peers.torch_parts import batches_of, network_of, training_dtype

    work, x, y = _workload_with_samples(message.content["config"]["title"])
    network = network_of(work)
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    client = context.node_config["partition-id"]
    optimizer = torch.optim.SGD(network.parameters(), lr=work.lr)
    dtype = training_dtype()
    for inputs, labels in batches_of(work, x[client], y[client]):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            output = network(inputs)
        F.cross_entropy(output.float(), labels).backward()
        optimizer.step()
    reply = {
        "arrays": ArrayRecord(network.state_dict()),
        "metrics": MetricRecord({"num-examples": work.samples}),
    }
    return Message(content=RecordDict(reply), reply_to=message)
