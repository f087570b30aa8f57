"""One client's round, alone: the code of the plain loop, of a pool's workers and of Flower."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.attacks import Attack
from unskew.data.federation import Federation
from unskew.engine.batches import Plan
from unskew.engine.cohort import ClientFailed, Task
from unskew.engine.optimiser import make_optimiser
from unskew.engine.settings import Settings
from unskew.layout import rows_are_finite
from unskew.methods.base import Client, Finished, Method, Start, Trained
from unskew.network import Batch, Network
from unskew.rng import stream


@dataclass(frozen=True, eq=False)
class Workshop:
    """What stays the same from client to client and from round to round."""

    method: Method
    network: Network
    federation: Federation
    settings: Settings
    device: torch.device
    attack: Attack | None = None
    bad: frozenset[int] = frozenset()
    """The clients that the attack turns bad."""

    def client(self, k: int) -> Client:
        """Return client k's handle for the hooks."""
        x, y = self.federation.train.client(k)
        return Client(k, to_tensor(x), to_tensor(y), self.network, self.federation.classes)

    @property
    def train_mask(self) -> Tensor | None:
        """The trainable coordinates that may change, as numbers to multiply gradients with."""
        mask, frozen = self.method.trains(self.network.layout), self.network.frozen
        if mask is None and frozen is None:
            return None
        free = torch.ones(self.network.layout.trainable, device=self.device)
        if mask is not None:
            free *= mask[: len(free)].to(self.device)
        if frozen is not None:
            free *= ~frozen.to(self.device)
        return free


@contextmanager
def blaming(client: int | str, round_: int, stage: str) -> Iterator[None]:
    """Turn any exception of user or method code into one that names client and stage."""
    try:
        yield
    except ClientFailed:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        where = f"client {client} failed in round {round_ + 1}, in {stage}"
        raise ClientFailed(f"{where}: {reason}") from error


def run_client(shop: Workshop, round_: int, task: Task) -> tuple[Trained, Finished]:
    """Prepare, train and finish one client."""
    client = replace(shop.client(task.client), lr=shop.settings.lr_in(round_))
    with blaming(client.id, round_, "prepare"):
        start = shop.method.prepare(client, task.payload, task.state)
    with blaming(client.id, round_, "training"):
        trained = train(shop, round_, client, start)
    with blaming(client.id, round_, "finish"):
        finished = shop.method.finish(client, start, trained, task.state)
    return trained, finished


def train(shop: Workshop, round_: int, client: Client, start: Start) -> Trained:
    """Take the client's steps of one round from its start."""
    network, settings, device = shop.network, shop.settings, shop.device
    size = np.array([len(client.y)])
    plan = Plan(np.array([client.id]), size, settings, round_, couples=network.couples_samples)
    # Layers that draw random numbers (Dropout) get the client's own stream.
    torch.manual_seed(int(stream(settings.seed, "layers", round_, client.id)) >> 1)
    trainable = network.layout.trainable
    weights = start.vector[:trainable].to(device, copy=True).requires_grad_()
    rest = start.vector[trainable:].to(device, copy=True)
    buffers = network.own_buffers(rest)
    refs = {name: ref.to(device) for name, ref in start.refs.items()}
    optimiser = make_optimiser(settings, round_, shop.train_mask)
    network.module.train()
    total = torch.zeros((), device=device)
    for positions in plan.of_first_client():
        rows = torch.from_numpy(positions)
        scale = torch.full((len(rows),), 1.0 / len(rows))
        if start.sample_weights is not None:
            scale = scale * start.sample_weights[rows]
        batch = Batch(
            network.inputs(client.x.index_select(0, rows).to(device)),
            client.y.index_select(0, rows).to(device, torch.int64),
            scale.to(device),
        )
        loss = shop.method.objective(network, weights, buffers, batch, refs)
        (gradient,) = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            total += loss
            optimiser.step(weights, gradient)
    network.put_buffers(buffers, rest)
    vector = torch.cat([weights.detach(), rest]).to("cpu")
    accuracy = None
    if shop.method.wants_train_accuracy:
        accuracy = own_accuracy(network, vector, client, device)
    finite = bool(rows_are_finite(vector))
    return Trained(vector, len(plan), float(total) / max(1, len(plan)), accuracy, finite)


@torch.no_grad()
def own_accuracy(
    network: Network, vector: Tensor, client: Client, device: torch.device, chunk: int = 512
) -> float:
    """Return the share of a client's training samples that a model gets right."""
    network.module.eval()
    vector = vector.to(device)
    trainable = network.layout.trainable
    weights, buffers = vector[:trainable], network.buffers_of(vector[trainable:])
    hits = 0
    for start in range(0, len(client.y), chunk):
        rows = slice(start, start + chunk)
        guess = network(weights, buffers, network.inputs(client.x[rows].to(device))).argmax(-1)
        hits += int((guess == client.y[rows].to(device)).sum())
    network.module.train()
    return hits / max(1, len(client.y))


def to_tensor(array: NDArray[Any]) -> Tensor:
    """Wrap an array without copying it; one mapped read-only from disk is copied when needed."""
    if array.dtype not in _TORCH_READS:
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)


_TORCH_READS = (np.uint8, np.int8, np.int16, np.int32, np.int64, np.float32)
