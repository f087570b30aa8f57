"""The vectorised runner: a whole cohort in one batched computation.

Every client's parameters are a row of one matrix. Clients come in descending order of steps, so
those that still train are always the first rows; a short batch is padded, and its padding has scale
0 in the loss. Steps of the same shape are replayed from a recording.
"""

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap

from unskew.engine.batches import Plan, Steps, local_steps
from unskew.engine.client import ClientContext, after_pass, error_context, to_tensor
from unskew.engine.cohort import Result, Task
from unskew.engine.gradients import Gradients
from unskew.engine.hook_checks import checked_finish, checked_start
from unskew.engine.optimizer import make_optimizer
from unskew.engine.private_steps import PrivateGradients
from unskew.engine.trace_cache import TraceCache
from unskew.engine.tracing import Function
from unskew.errors import UnskewError
from unskew.methods.common.base import Client, Finished, Start, Trained
from unskew.models.layout import rows_are_finite

_CHUNK_NUMBERS = 2**24
"""Bound on clients x parameters, and on clients x samples of the largest, in one computation."""
_ALL = "of the cohort (runner='loop' tells which)"
_BLOCK_NUMBERS = 2**20
"""Bound on the numbers of samples that are gathered at once, for several steps."""


class Vectorised:
    """Trains the cohort as rows of one matrix."""

    kind = "vectorised"

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        train = context.federation.train
        self._data = to_tensor(train.x), to_tensor(train.y)
        self._replays: dict[int, TraceCache] = {}
        """Of each pass of the round: the objectives differ."""

    def train(self, round_: int, tasks: Sequence[Task]) -> Result:
        """Train the clients of one round."""
        for earlier in self._context.extra_trainings:
            done = self._run_pass(earlier, round_, tasks)
            tasks = [
                after_pass(task, trained, finished)
                for task, trained, finished in zip(tasks, done.trained, done.finished, strict=True)
            ]
        return self._run_pass(self._context, round_, tasks)

    def _run_pass(self, context: ClientContext, round_: int, tasks: Sequence[Task]) -> Result:
        ids = np.array([task.client for task in tasks])
        offsets, network = context.federation.train.offsets, context.network
        sizes = offsets[ids + 1] - offsets[ids]
        if network.couples_samples and np.any(sizes != sizes[0]):
            raise UnskewError(
                "runner: 'vectorised' takes networks with BatchNorm only when all clients have "
                "the same number of samples, since padding would enter their statistics; "
                "use runner='pool'"
            )
        steps = local_steps(sizes, context.settings, couples=network.couples_samples)
        order = np.argsort(-steps, kind="stable")
        stacks: list[Tensor] = []
        outcomes: list[tuple[Trained, Finished]] = []
        replays = self._replays.setdefault(id(context), TraceCache())
        for rows in self._chunks(order, sizes):
            chunk = _Chunk(context, round_, [tasks[k] for k in rows.tolist()], self._data, replays)
            trained_rows, done = chunk.run()
            stacks.append(trained_rows)
            outcomes += done
        back = np.argsort(order)
        together = stacks[0] if len(stacks) == 1 else torch.cat(stacks)
        stack = together.index_select(0, torch.from_numpy(back))
        ordered = [outcomes[k] for k in back.tolist()]
        return Result(stack, [trained for trained, _ in ordered], [kept for _, kept in ordered])

    def close(self) -> None:
        """Nothing to release."""

    def _chunks(
        self, order: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> Iterator[NDArray[np.int64]]:
        """Cut the cohort into pieces that fit into memory; neighbours have similar sizes."""
        start = 0
        while start < len(order):
            widest = max(self._context.network.layout.size, int(sizes[order[start]]), 1)
            length = max(1, _CHUNK_NUMBERS // widest)
            yield order[start : start + length]
            start += length


class _Chunk:
    """Clients that are trained together, in descending order of steps."""

    def __init__(
        self,
        context: ClientContext,
        round_: int,
        tasks: Sequence[Task],
        data: tuple[Tensor, Tensor],
        replays: TraceCache,
    ) -> None:
        self._context, self._round, self._tasks = context, round_, tasks
        self._replays = replays
        self._x, self._y = data
        self._ids = np.array([task.client for task in tasks])
        offsets = context.federation.train.offsets
        self._offsets = offsets[self._ids]
        self._sizes = offsets[self._ids + 1] - self._offsets

    def run(self) -> tuple[Tensor, list[tuple[Trained, Finished]]]:
        """Prepare, train and finish all clients; return their rows and outcomes."""
        method, round_ = self._context.method, self._round
        network, classes = self._context.network, self._context.federation.classes
        settings, x, y = self._context.settings, self._x, self._y
        seed, lr = settings.seed, settings.lr_in(round_)
        places = zip(self._ids.tolist(), self._offsets.tolist(), self._sizes.tolist(), strict=True)
        clients = [
            Client(k, x.narrow(0, a, n), y.narrow(0, a, n), network, classes, seed, round_, lr)
            for k, a, n in places
        ]
        starts = []
        with error_context(_ALL, round_, "prepare") as blamed:
            for client, task in zip(clients, self._tasks, strict=True):
                blamed.client = client.id
                start = method.prepare(client, task.payload, task.state)
                starts.append(checked_start(start, client.network.layout.size))
        with error_context(_ALL, round_, "training"):
            rows, steps, losses, reaches = self._train(starts)
            accuracies: list[float] | list[None] = [None] * len(clients)
            if method.needs_train_accuracy:
                accuracies = self._accuracies(rows)
        rows = rows.to("cpu")
        finite = rows_are_finite(rows).tolist()
        ends = zip(rows.unbind(), steps, losses, accuracies, finite, reaches, strict=True)
        outcomes = []
        with error_context(_ALL, round_, "finish") as blamed:
            for client, task, start, end in zip(clients, self._tasks, starts, ends, strict=True):
                blamed.client = client.id
                trained = Trained(*end)
                finished = checked_finish(method.finish(client, start, trained, task.state))
                outcomes.append((trained, finished))
        return rows, outcomes

    @torch.no_grad()
    def _train(
        self, starts: Sequence[Start]
    ) -> tuple[Tensor, list[int], list[float], list[float | None]]:
        """Take all steps of the round; return rows, steps, mean losses and reaches of clients."""
        network, device, settings = (
            self._context.network,
            self._context.device,
            self._context.settings,
        )
        method, trainable = self._context.method, network.layout.trainable
        rows = _stacked([start.vector for start in starts]).to(device)
        buffers = network.own_buffers(rows[:, trainable:])
        shared, own = _split_refs(starts, device)
        sample_weights = _padded([start.sample_weights for start in starts], self._sizes)
        gradients = self._gradients(tuple(buffers), tuple(own), tuple(shared))
        optimizer = make_optimizer(settings, self._round, self._context.train_mask)
        plan = Plan(self._ids, self._sizes, settings, self._round, couples=network.couples_samples)
        noise_per_sample = method.noise_per_sample(network)
        totals = torch.zeros(len(starts), device=device)
        network.module.train()
        for block in plan.in_blocks(
            _BLOCK_NUMBERS // (prod(self._x.shape[1:]) + noise_per_sample + 1)
        ):
            active = slice(block.clients)
            weights, losses_so_far = rows[active, :trainable], totals[active]
            others = [tensor[active] for tensor in (*buffers.values(), *own.values())]
            others += shared.values()
            batches = self._batches(block, sample_weights)
            if noise_per_sample:
                batches += (torch.from_numpy(plan.chances(block, noise_per_sample)).to(device),)
            if self._context.private is not None:
                batches += _counts_and_steps(block)
            for batch in zip(*(tensor.unbind() for tensor in batches), strict=True):
                losses, gradient = gradients(weights, *others, *batch)
                losses_so_far += losses
                optimizer.step(weights, gradient)
        network.put_buffers(buffers, rows[:, trainable:])
        means = totals.cpu().numpy() / np.maximum(1, plan.steps)
        steps: list[int] = plan.steps.tolist()
        effective_step = {
            count: optimizer.effective_step(count, method.proximal_strength())
            for count in set(steps)
        }
        return rows, steps, means.tolist(), [effective_step[count] for count in steps]

    def _gradients(
        self, buffers: tuple[str, ...], own: tuple[str, ...], shared: tuple[str, ...]
    ) -> Function:
        """Return what computes losses and gradients, given the names of tensors it will get.

        Buffers change as they are used, so with them nothing can be replayed.
        """
        if self._context.private is not None:
            return PrivateGradients(
                self._context.private,
                self._context.method,
                self._context.network,
                own,
                shared,
                self._ids.tolist(),
                self._sizes,
                self._context.settings,
                self._round,
            )
        gradients = Gradients(self._context.method, self._context.network, buffers, own, shared)
        if buffers or self._context.device.type != "cpu":
            return gradients
        return self._replays.of((own, shared), gradients)

    def _batches(self, steps: Steps, sample_weights: Tensor | None) -> tuple[Tensor, ...]:
        """Gather the samples of some steps: the tensors of a :class:`Batch`, a row a step."""
        device, lead = self._context.device, steps.positions.shape
        places = torch.from_numpy((steps.positions + self._offsets[: lead[1], None]).ravel())
        places.clamp_(max=len(self._y) - 1)  # the padding of a last client without samples
        x = self._context.network.inputs(self._x.index_select(0, places).to(device))
        y = self._y.index_select(0, places).to(device, torch.int64)
        counts = steps.counts[:, :, None]
        scale = torch.from_numpy(((np.arange(lead[2]) < counts) / counts).astype(np.float32))
        if sample_weights is not None:
            clients = torch.arange(lead[1])[:, None]
            scale *= sample_weights[clients, torch.from_numpy(steps.positions)]
        return x.reshape(*lead, *x.shape[1:]), y.view(lead), scale.to(device)

    @torch.no_grad()
    def _accuracies(self, rows: Tensor, width: int = 256) -> list[float]:
        """Return each client's accuracy on its own training samples."""
        network, trainable = self._context.network, self._context.network.layout.trainable
        hits = torch.zeros(len(rows), device=rows.device)
        network.module.eval()
        for start in range(0, int(self._sizes.max(initial=0)), width):
            wanted = np.arange(start, start + width)[None, :]
            positions = np.minimum(wanted, np.maximum(self._sizes[:, None] - 1, 0))
            x, y, *_ = self._batches(
                Steps(0, positions[None], np.ones_like(self._sizes)[None]), None
            )
            buffers = network.buffers_of(rows[:, trainable:])
            guesses = vmap(network)(rows[:, :trainable], buffers, x[0]).argmax(-1)
            real = torch.from_numpy(wanted < self._sizes[:, None]).to(rows.device)
            hits += ((guesses == y[0]) & real).sum(1)
        network.module.train()
        shares: list[float] = (hits.cpu().numpy() / np.maximum(1, self._sizes)).tolist()
        return shares


def _counts_and_steps(block: Steps) -> tuple[Tensor, Tensor]:
    """Return how many samples each client has in each step, and the steps' numbers."""
    counts = torch.from_numpy(block.counts)
    steps = torch.arange(block.first, block.first + len(counts))
    return counts, steps[:, None].expand(counts.shape)


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
