"""Clients that are trained together, as one matrix.

Every client's parameters are a row of the matrix. Clients are in descending order of steps, so
those that are still training are always the first rows. A short batch is padded, and its padding
has scale 0 in the loss. Steps of the same shape run from a trace.
"""

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap

from unskew.composition.values import Client, Start, Tensors, Trained
from unskew.engine.batches import Steps
from unskew.engine.client import ClientContext, error_context
from unskew.engine.cohort import ClientTask
from unskew.engine.gradients import Gradients
from unskew.engine.optimizer import make_optimizer
from unskew.engine.placement import Samples, is_accelerator, take, to_device
from unskew.engine.private_steps import PrivateGradients, reject_exact_values
from unskew.engine.trace_cache import TraceCache
from unskew.engine.tracing import Function
from unskew.engine.vectorised_outcome import CohortOutcome
from unskew.models.layout import rows_are_finite

_ANY_CLIENT = "of the cohort (use runner='loop' to see which)"
_BLOCK_NUMBERS = 2**20
"""Bound on the numbers in the samples that are gathered at once, for several steps."""


class Chunk:
    """Clients that are trained together, in descending order of steps."""

    def __init__(
        self,
        context: ClientContext,
        round_: int,
        tasks: Sequence[ClientTask],
        data: Samples,
        on_device: Samples,
        traces: TraceCache,
    ) -> None:
        self._context, self._round, self._tasks = context, round_, tasks
        self._traces = traces
        self._x, self._y = data
        self._on_device = on_device
        self._ids = np.array([task.client for task in tasks])
        offsets = context.federation.train.offsets
        self._offsets = offsets[self._ids]
        self._sizes = offsets[self._ids + 1] - self._offsets

    def run(self, outcome: CohortOutcome, places: NDArray[np.int64]) -> None:
        """Prepare, train and finish all clients; ``places`` are their rows in the outcome."""
        method, round_ = self._context.method, self._round
        network, classes = self._context.network, self._context.federation.classes
        settings, x, y = self._context.settings, self._x, self._y
        seed, lr, sent_mask = settings.seed, settings.lr_in(round_), self._context.sent_mask
        slices = zip(self._ids.tolist(), self._offsets.tolist(), self._sizes.tolist(), strict=True)
        clients = [
            Client(
                k,
                x.narrow(0, a, n),
                y.narrow(0, a, n),
                network,
                classes,
                seed,
                round_,
                lr,
                sent_mask,
            )
            for k, a, n in slices
        ]
        starts = []
        with error_context(_ANY_CLIENT, round_, "prepare") as errors:
            for client, task in zip(clients, self._tasks, strict=True):
                errors.client = client.id
                starts.append(method.prepare(client, task.payload, task.state))
                _check_refs(starts[-1], starts[0])
        with error_context(_ANY_CLIENT, round_, "training"):
            rows, steps, losses, effective_steps, refs = self._train(starts)
            accuracies: list[float] | list[None] = [None] * len(clients)
            if method.needs_train_accuracy:
                accuracies = self._accuracies(rows)
        rows = to_device(rows, outcome.device)
        finite = rows_are_finite(rows).tolist()
        ends = zip(
            rows.unbind(), steps, losses, accuracies, finite, effective_steps, refs, strict=True
        )
        with error_context(_ANY_CLIENT, round_, "finish") as errors:
            for place, client, task, start, end in zip(
                places.tolist(), clients, self._tasks, starts, ends, strict=True
            ):
                errors.client = client.id
                trained = Trained(*end)
                finished = method.finish(client, start, trained, task.state)
                reject_exact_values(self._context.private, finished.extras)
                outcome.write(place, trained, finished)
        outcome.write_models(places, rows)

    @torch.no_grad()
    def _train(
        self, starts: Sequence[Start]
    ) -> tuple[Tensor, list[int], list[float], list[float | None], list[Tensors]]:
        """Take all steps of the round.

        Returns the clients' rows, numbers of steps, mean losses, effective steps, and references
        that change from step to step.
        """
        network, device, settings = (
            self._context.network,
            self._context.device,
            self._context.settings,
        )
        method, trainable = self._context.method, network.layout.trainable
        rows = self._rows([start.vector for start in starts])
        buffers = network.copy_buffers(rows[:, trainable:])
        shared, per_client = _split_refs(starts, device, method.changing_refs)
        sample_weights = _padded([start.sample_weights for start in starts], self._sizes)
        train_mask = self._context.train_mask
        gradients = self._gradients(tuple(buffers), tuple(per_client), tuple(shared), train_mask)
        optimizer = make_optimizer(settings, self._round, train_mask)
        schedule = self._context.schedule(self._ids, self._sizes, self._round)
        noise_per_sample = method.noise_per_sample(network)
        totals = torch.zeros(len(starts), device=device)
        network.module.train()
        for block in schedule.in_blocks(
            _BLOCK_NUMBERS // (prod(self._x.shape[1:]) + noise_per_sample + 1)
        ):
            active = slice(block.clients)
            weights, losses_so_far = rows[active, :trainable], totals[active]
            others = [tensor[active] for tensor in (*buffers.values(), *per_client.values())]
            others += shared.values()
            changing = [per_client[name][active] for name in method.changing_refs]
            batches = self._batches(block, sample_weights)
            if noise_per_sample:
                noise = torch.from_numpy(schedule.block_noise(block, noise_per_sample))
                batches += (to_device(noise, device),)
            if self._context.private is not None:
                batches += _counts_and_steps(block)
            for batch in zip(*(tensor.unbind() for tensor in batches), strict=True):
                losses, gradient, *changed = gradients(weights, *others, *batch)
                losses_so_far += losses
                for rows_of_ref, new in zip(changing, changed, strict=True):
                    rows_of_ref.copy_(new)
                optimizer.step(weights, gradient)
                del gradient  # or it would be in use while the next one is computed
        network.write_buffers(buffers, rows[:, trainable:])
        means = totals.cpu().numpy() / np.maximum(1, schedule.steps)
        if self._context.private is not None:
            means.fill(np.nan)  # it has no noise
        steps: list[int] = schedule.steps.tolist()
        effective_step = {
            count: optimizer.effective_step(count, method.proximal_strength())
            for count in set(steps)
        }
        effective_steps = [effective_step[count] for count in steps]
        cpu = torch.device("cpu")
        changed_refs = {name: to_device(per_client[name], cpu) for name in method.changing_refs}
        refs: list[Tensors] = [
            {name: each[k] for name, each in changed_refs.items()} for k in range(len(steps))
        ]
        return rows, steps, means.tolist(), effective_steps, refs

    def _rows(self, models: Sequence[Tensor]) -> Tensor:
        """Stack models into new rows; one that all clients share is read and moved once."""
        device = self._context.device
        if _is_shared(models):
            shared = self._context.model_on_device.of(models[0], device)
            return shared.expand(len(models), -1).clone()
        return to_device(torch.stack(list(models)), device)

    def _gradients(
        self,
        buffers: tuple[str, ...],
        per_client: tuple[str, ...],
        shared: tuple[str, ...],
        train_mask: Tensor | None,
    ) -> Function:
        """Return the function of losses and gradients, given the names of its tensors.

        Training changes buffers in place, so a network with buffers is not traced.
        """
        if self._context.private is not None:
            return PrivateGradients(
                self._context.private,
                self._context.method,
                self._context.network,
                per_client,
                shared,
                self._ids.tolist(),
                self._sizes,
                self._context.settings,
                self._round,
            )
        gradients = Gradients(
            self._context.method,
            self._context.network,
            buffers,
            per_client,
            shared,
            train_mask,
        )
        if buffers or is_accelerator(self._context.device):
            return gradients
        return self._traces.of((per_client, shared), gradients)

    def _batches(self, steps: Steps, sample_weights: Tensor | None) -> tuple[Tensor, ...]:
        """Gather the samples of a block: the tensors of a :class:`Batch`, one row per step."""
        device, shape = self._context.device, steps.positions.shape
        indices = torch.from_numpy((steps.positions + self._offsets[: shape[1], None]).ravel())
        indices.clamp_(max=len(self._y) - 1)  # the padding of a last client without samples
        samples, targets = self._on_device
        x = self._context.network.inputs(take(samples, indices, device))
        y = take(targets, indices, device).to(self._context.network.goal.target_dtype)
        counts = steps.counts[:, :, None]
        scale = torch.from_numpy(((np.arange(shape[2]) < counts) / counts).astype(np.float32))
        if sample_weights is not None:
            clients = torch.arange(shape[1])[:, None]
            scale *= sample_weights[clients, torch.from_numpy(steps.positions)]
        return x.reshape(*shape, *x.shape[1:]), y.view(shape), to_device(scale, device)

    @torch.no_grad()
    def _accuracies(self, rows: Tensor, width: int = 256) -> list[float]:
        """Return each client's accuracy on that client's training samples."""
        network, trainable = self._context.network, self._context.network.layout.trainable
        device = self._context.device
        correct = torch.zeros(len(rows), device=device)
        network.module.eval()
        for start in range(0, int(self._sizes.max(initial=0)), width):
            indices = np.arange(start, start + width)[None, :]
            positions = np.minimum(indices, np.maximum(self._sizes[:, None] - 1, 0))
            x, y, *_ = self._batches(
                Steps(0, positions[None], np.ones_like(self._sizes)[None]), None
            )
            buffers = network.buffers_of(rows[:, trainable:])
            predicted = vmap(network)(rows[:, :trainable], buffers, x[0]).argmax(-1)
            real = to_device(torch.from_numpy(indices < self._sizes[:, None]), device)
            correct += ((predicted == y[0]) & real).sum(1)
        network.module.train()
        accuracies: list[float] = (correct.cpu().numpy() / np.maximum(1, self._sizes)).tolist()
        return accuracies


def _counts_and_steps(block: Steps) -> tuple[Tensor, Tensor]:
    """Return each client's number of samples in each step, and the numbers of the steps."""
    counts = torch.from_numpy(block.counts)
    steps = torch.arange(block.first, block.first + len(counts))
    return counts, steps[:, None].expand(counts.shape)


def _check_refs(start: Start, first: Start) -> None:
    """Raise if a client's references cannot be stacked with those of the first client."""
    own, others = ({name: tuple(ref.shape) for name, ref in s.refs.items()} for s in (start, first))
    if own != others:
        raise TypeError(
            f"its refs {own} differ in name or shape from those of another client, {others}, and "
            "runner='vectorised' trains both together; use runner='loop' or 'processes'"
        )


def _split_refs(
    starts: Sequence[Start], device: torch.device, changing: Sequence[str]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Separate references that all clients share from those per client, which are stacked.

    References that change from step to step differ between clients even if they start equal.
    """
    shared: dict[str, Tensor] = {}
    per_client: dict[str, Tensor] = {}
    for name in starts[0].refs:
        values = [start.refs[name] for start in starts]
        if name not in changing and _is_shared(values):
            shared[name] = to_device(values[0], device)
        else:
            per_client[name] = to_device(torch.stack(values), device)
    return shared, per_client


def _padded(weights: Sequence[Tensor | None], sizes: NDArray[np.int64]) -> Tensor | None:
    """Return sample weights as clients x samples; clients without weights get ones."""
    if all(values is None for values in weights):
        return None
    padded = torch.ones(len(weights), int(sizes.max(initial=0)))
    for row, values in zip(padded, weights, strict=True):
        if values is not None:
            row[: len(values)] = values
    return padded


def _is_shared(tensors: Sequence[Tensor]) -> bool:
    """Return whether all tensors are views of the same memory."""
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
