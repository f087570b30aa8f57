"""The vectorised runner: a whole cohort in one batched computation.

Every client's parameters are a row of one matrix. ``torch.vmap`` runs the method's objective over
the rows; since no client's loss depends on another's row, the gradient of their sum holds each
client's own gradient. Clients come in descending order of steps, so those that still train are
always the first rows; a short batch is padded, and its padding has scale 0 in the loss.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap

from unskew.engine.batches import Plan, Step, local_steps
from unskew.engine.client import Workshop, blaming, to_tensor
from unskew.engine.cohort import Result, Task
from unskew.engine.optimiser import make_optimiser
from unskew.errors import UnskewError
from unskew.layout import rows_are_finite
from unskew.methods.base import Client, Finished, Start, Trained
from unskew.network import Batch

_CHUNK_NUMBERS = 2**24
"""Bound on clients x parameters, and on clients x samples of the largest, in one computation."""


class Vectorised:
    """Trains the cohort as rows of one matrix."""

    kind = "vectorised"

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        train = shop.federation.train
        self._data = to_tensor(train.x), to_tensor(train.y)

    def train(self, round_: int, tasks: Sequence[Task]) -> Result:
        """Train the clients of one round."""
        ids = np.array([task.client for task in tasks])
        offsets, network = self._shop.federation.train.offsets, self._shop.network
        sizes = offsets[ids + 1] - offsets[ids]
        if network.couples_samples and np.any(sizes != sizes[0]):
            raise UnskewError(
                "runner: 'vectorised' takes networks with BatchNorm only when all clients have "
                "the same number of samples, since padding would enter their statistics; "
                "use runner='pool'"
            )
        steps = local_steps(sizes, self._shop.settings, couples=network.couples_samples)
        stack = torch.empty(len(tasks), network.layout.size)
        outcomes: dict[int, tuple[Trained, Finished]] = {}
        for rows in self._chunks(np.argsort(-steps, kind="stable"), sizes):
            chunk = _Chunk(self._shop, round_, [tasks[row] for row in rows], self._data)
            trained_rows, done = chunk.run()
            stack[torch.from_numpy(rows)] = trained_rows
            outcomes.update(zip(rows.tolist(), done, strict=True))
        ordered = [outcomes[row] for row in range(len(tasks))]
        return Result(stack, [trained for trained, _ in ordered], [kept for _, kept in ordered])

    def close(self) -> None:
        """Nothing to release."""

    def _chunks(
        self, order: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> Iterator[NDArray[np.int64]]:
        """Cut the cohort into pieces that fit into memory; neighbours have similar sizes."""
        start = 0
        while start < len(order):
            widest = max(self._shop.network.layout.size, int(sizes[order[start]]), 1)
            length = max(1, _CHUNK_NUMBERS // widest)
            yield order[start : start + length]
            start += length


class _Chunk:
    """Clients that are trained together, in descending order of steps."""

    def __init__(
        self, shop: Workshop, round_: int, tasks: Sequence[Task], data: tuple[Tensor, Tensor]
    ) -> None:
        self._shop, self._round, self._tasks = shop, round_, tasks
        self._x, self._y = data
        self._ids = np.array([task.client for task in tasks])
        offsets = shop.federation.train.offsets
        self._offsets = offsets[self._ids]
        self._sizes = offsets[self._ids + 1] - self._offsets

    def run(self) -> tuple[Tensor, list[tuple[Trained, Finished]]]:
        """Prepare, train and finish all clients; return their rows and outcomes."""
        method, round_ = self._shop.method, self._round
        shop, classes = self._shop, self._shop.federation.classes
        lr = shop.settings.lr_in(round_)
        clients = [
            Client(task.client, self._x[a : a + n], self._y[a : a + n], shop.network, classes, lr)
            for task, a, n in zip(
                self._tasks, self._offsets.tolist(), self._sizes.tolist(), strict=True
            )
        ]
        starts = []
        for client, task in zip(clients, self._tasks, strict=True):
            with blaming(client.id, round_, "prepare"):
                starts.append(method.prepare(client, task.payload, task.state))
        with blaming("of the cohort (runner='loop' tells which)", round_, "training"):
            rows, steps, losses = self._train(starts)
            accuracies: list[float] | list[None] = [None] * len(clients)
            if method.wants_train_accuracy:
                accuracies = self._accuracies(rows)
        rows = rows.to("cpu")
        finite = rows_are_finite(rows).tolist()
        outcomes = []
        for k, (client, task) in enumerate(zip(clients, self._tasks, strict=True)):
            trained = Trained(rows[k], steps[k], losses[k], accuracies[k], finite[k])
            with blaming(client.id, round_, "finish"):
                outcomes.append((trained, method.finish(client, starts[k], trained, task.state)))
        return rows, outcomes

    def _train(self, starts: Sequence[Start]) -> tuple[Tensor, list[int], list[float]]:
        """Take all steps of the round; return rows, steps and mean losses of the clients."""
        method, network, device = self._shop.method, self._shop.network, self._shop.device
        settings, trainable = self._shop.settings, network.layout.trainable
        rows = _stacked([start.vector for start in starts]).to(device)
        weights = rows[:, :trainable]
        buffers = network.own_buffers(rows[:, trainable:])
        shared, own = _split_refs(starts, device)
        sample_weights = _padded([start.sample_weights for start in starts], self._sizes)

        def loss(w: Tensor, x: Tensor, y: Tensor, scale: Tensor, *others: Tensor) -> Tensor:
            # vmap takes plain tensors in half the time that it takes dictionaries of them.
            own_buffers = dict(zip(buffers, others, strict=False))
            refs = {**shared, **dict(zip(own, others[len(buffers) :], strict=True))}
            return method.objective(network, w, own_buffers, Batch(x, y, scale), refs)

        losses_of = vmap(loss)
        optimiser = make_optimiser(settings, self._round, self._shop.train_mask)
        plan = Plan(self._ids, self._sizes, settings, self._round, couples=network.couples_samples)
        totals = torch.zeros(len(starts), device=device)
        network.module.train()
        for t in range(len(plan)):
            step = plan[t]
            active = slice(step.active)
            leaf = weights[active].detach().requires_grad_()
            others = [tensor[active] for tensor in (*buffers.values(), *own.values())]
            losses = losses_of(leaf, *self._batch(step, sample_weights), *others)
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
            with torch.no_grad():
                totals[active] += losses
                optimiser.step(leaf, gradient)
        network.put_buffers(buffers, rows[:, trainable:])
        means = totals.cpu().numpy() / np.maximum(1, plan.steps)
        return rows, plan.steps.tolist(), means.tolist()

    def _batch(self, step: Step, sample_weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Gather one step's samples: clients x batch x features, labels, and factors."""
        device, lead = self._shop.device, step.positions.shape
        places = torch.from_numpy((step.positions + self._offsets[: step.active, None]).ravel())
        places.clamp_(max=len(self._y) - 1)  # the padding of a last client without samples
        x = self._shop.network.inputs(self._x.index_select(0, places).to(device))
        y = self._y.index_select(0, places).to(device, torch.int64)
        real = np.arange(lead[1]) < step.counts[:, None]
        scale = torch.from_numpy((real / step.counts[:, None]).astype(np.float32))
        if sample_weights is not None:
            positions = torch.from_numpy(step.positions)
            scale = scale * sample_weights[: step.active].gather(1, positions)
        return x.reshape(*lead, *x.shape[1:]), y.view(lead), scale.to(device)

    @torch.no_grad()
    def _accuracies(self, rows: Tensor, width: int = 256) -> list[float]:
        """Return each client's accuracy on its own training samples."""
        network, trainable = self._shop.network, self._shop.network.layout.trainable
        hits = torch.zeros(len(rows), device=rows.device)
        network.module.eval()
        for start in range(0, int(self._sizes.max(initial=0)), width):
            wanted = np.arange(start, start + width)[None, :]
            positions = np.minimum(wanted, np.maximum(self._sizes[:, None] - 1, 0))
            x, y, _ = self._batch(Step(len(rows), positions, np.ones_like(self._sizes)), None)
            buffers = network.buffers_of(rows[:, trainable:])
            guesses = vmap(network)(rows[:, :trainable], buffers, x).argmax(-1)
            real = torch.from_numpy(wanted < self._sizes[:, None]).to(rows.device)
            hits += ((guesses == y) & real).sum(1)
        network.module.train()
        shares: list[float] = (hits.cpu().numpy() / np.maximum(1, self._sizes)).tolist()
        return shares


def _stacked(vectors: Sequence[Tensor]) -> Tensor:
    """Stack vectors into new rows; a vector that all clients share is read once."""
    if _are_one(vectors):
        return vectors[0].expand(len(vectors), -1).clone()
    return torch.stack(list(vectors))


def _split_refs(
    starts: Sequence[Start], device: torch.device
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Separate references all clients share from those each has for itself, stacked by client."""
    shared: dict[str, Tensor] = {}
    own: dict[str, Tensor] = {}
    for name in starts[0].refs:
        values = [start.refs[name] for start in starts]
        if _are_one(values):
            shared[name] = values[0].to(device)
        else:
            own[name] = torch.stack(values).to(device)
    return shared, own


def _padded(weights: Sequence[Tensor | None], sizes: NDArray[np.int64]) -> Tensor | None:
    """Lay sample weights out as clients x samples; clients without weights get ones."""
    if all(values is None for values in weights):
        return None
    padded = torch.ones(len(weights), int(sizes.max(initial=0)))
    for row, values in zip(padded, weights, strict=True):
        if values is not None:
            row[: len(values)] = values
    return padded


def _are_one(tensors: Sequence[Tensor]) -> bool:
    """Tell whether all are the same numbers at the same place in memory."""
    first = tensors[0]
    return all(
        tensor is first
        or (
            tensor.data_ptr() == first.data_ptr()
            and tensor.shape == first.shape
            and tensor.stride() == first.stride()
        )
        for tensor in tensors[1:]
    )
