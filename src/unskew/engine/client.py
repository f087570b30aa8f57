"""One client's round, alone: the code of the plain loop, of a pool's workers and of Flower."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.data.federation import Federation
from unskew.engine.attacks import Attack
from unskew.engine.batches import Plan
from unskew.engine.cohort import ClientFailed, Task
from unskew.engine.hook_checks import checked_finish, checked_start
from unskew.engine.optimizer import make_optimizer
from unskew.engine.private_steps import PrivateGradients, PrivateStage
from unskew.engine.settings import Settings
from unskew.engine.trace_cache import TraceCache
from unskew.methods.common.base import (
    Client,
    ExtraTraining,
    Finished,
    Method,
    Start,
    Tensors,
    Trained,
)
from unskew.models.functional import Batch, Buffers, FunctionalModel
from unskew.models.layout import Layout, rows_are_finite
from unskew.utils.rng import stream


@dataclass(frozen=True, eq=False)
class ClientContext:
    """What stays the same from client to client and from round to round."""

    method: Method
    network: FunctionalModel
    federation: Federation
    settings: Settings
    device: torch.device
    attack: Attack | None = None
    bad: frozenset[int] = frozenset()
    """The clients that the attack turns bad."""
    private: PrivateStage | None = None
    """Set where local steps keep a budget of privacy."""
    only: Callable[[Layout], Tensor] | None = None
    """Marks the coordinates that may change, in place of what the method says."""
    replays: TraceCache | None = None
    """Set where steps of clients that train one by one may be recorded and replayed."""

    @cached_property
    def extra_trainings(self) -> tuple["ClientContext", ...]:
        """The workshops of the trainings that come before the round's own."""
        return tuple(self.for_pass(each) for each in self.method.extra_trainings())

    def for_pass(self, each: ExtraTraining) -> "ClientContext":
        """Return the workshop of a training of its own; its batches are drawn anew."""
        changes: dict[str, object] = {"seed": int(stream(self.settings.seed, each.name)) >> 1}
        if each.epochs is not None:
            changes |= {"epochs": each.epochs, "steps": None}
        settings = self.settings.model_copy(update=changes)
        replays = None if self.replays is None else TraceCache()
        return replace(
            self, method=each.method, settings=settings, only=each.trains, replays=replays
        )

    def client(self, k: int, round_: int) -> Client:
        """Return client k's handle for the hooks."""
        x, y = self.federation.train.client(k)
        classes, seed = self.federation.classes, self.settings.seed
        lr = self.settings.lr_in(round_)
        return Client(k, to_tensor(x), to_tensor(y), self.network, classes, seed, round_, lr)

    @property
    def train_mask(self) -> Tensor | None:
        """The trainable coordinates that may change, as numbers to multiply gradients with."""
        mask = (self.only or self.method.trains)(self.network.layout)
        frozen = self.network.frozen
        if mask is None and frozen is None:
            return None
        free = torch.ones(self.network.layout.trainable, device=self.device)
        if mask is not None:
            free *= mask[: len(free)].to(self.device)
        if frozen is not None:
            free *= ~frozen.to(self.device)
        return free


class error_context:
    """Turns any exception of user or method code into one that names client and stage.

    Who goes through many clients enters once and says whose turn it is by setting ``client``.
    """

    def __init__(self, client: int | str, round_: int, stage: str) -> None:
        self.client = client
        self._round, self._stage = round_, stage

    def __enter__(self) -> "error_context":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, ClientFailed):
            reason = f"{type(error).__name__}: {error}"
            where = f"client {self.client} failed in round {self._round + 1}, in {self._stage}"
            failure = ClientFailed(f"{where}: {reason}")
            failure.hook = self._stage
            raise failure from error


def run_client(context: ClientContext, round_: int, task: Task) -> tuple[Trained, Finished]:
    """Let one client train in every pass of the round; return what came of the last."""
    for earlier in context.extra_trainings:
        task = after_pass(task, *_run_pass(earlier, round_, task))
    return _run_pass(context, round_, task)


def after_pass(task: Task, trained: Trained, finished: Finished) -> Task:
    """Return the task with the state that a pass leaves; one that went astray leaves none."""
    return replace(task, state=finished.state) if trained.finite else task


def _run_pass(context: ClientContext, round_: int, task: Task) -> tuple[Trained, Finished]:
    """Prepare, train and finish one client."""
    client = context.client(task.client, round_)
    with error_context(client.id, round_, "prepare"):
        start = checked_start(
            context.method.prepare(client, task.payload, task.state), context.network.layout.size
        )
    with error_context(client.id, round_, "training"):
        trained = train(context, round_, client, start)
    with error_context(client.id, round_, "finish"):
        finished = checked_finish(context.method.finish(client, start, trained, task.state))
    return trained, finished


def train(context: ClientContext, round_: int, client: Client, start: Start) -> Trained:
    """Take the client's steps of one round from its start."""
    network, settings, device = context.network, context.settings, context.device
    size = np.array([len(client.y)])
    plan = Plan(np.array([client.id]), size, settings, round_, couples=network.couples_samples)
    # Layers that draw random numbers (Dropout) get the client's own stream.
    seed_layers(int(stream(settings.seed, "layers", round_, client.id)) >> 1, device)
    trainable = network.layout.trainable
    weights = start.vector[:trainable].to(device, copy=True)
    rest = start.vector[trainable:].to(device, copy=True)
    buffers = network.own_buffers(rest)
    refs = {name: ref.to(device) for name, ref in start.refs.items()}
    optimizer = make_optimizer(settings, round_, context.train_mask)
    network.module.train()
    total = torch.zeros((), device=device)
    noise_per_sample = context.method.noise_per_sample(network)
    gradients = _gradients(context, buffers, refs)
    for t, positions in enumerate(plan.of_first_client()):
        rows = torch.from_numpy(positions)
        scale = torch.full((len(rows),), 1.0 / len(rows))
        if start.sample_weights is not None:
            scale = scale * start.sample_weights[rows]
        batch = Batch(
            network.inputs(client.x.index_select(0, rows).to(device)),
            client.y.index_select(0, rows).to(device, torch.int64),
            scale.to(device),
            _to(plan.noise(t, len(rows), noise_per_sample), device),
        )
        if context.private is None:
            value, gradient = gradients(weights, batch)
        else:
            value, gradient = _private(context, round_, client, weights, batch, refs, t)
        with torch.no_grad():
            total += value
            optimizer.step(weights, gradient)
    network.put_buffers(buffers, rest)
    vector = torch.cat([weights.detach(), rest]).to("cpu")
    accuracy = None
    if context.method.needs_train_accuracy:
        accuracy = own_accuracy(network, vector, client, device)
    finite = bool(rows_are_finite(vector))
    loss, effective_step = (
        float(total) / max(1, len(plan)),
        optimizer.effective_step(len(plan), context.method.proximal_strength()),
    )
    return Trained(vector, len(plan), loss, accuracy, finite, effective_step)


def _gradients(
    context: ClientContext, buffers: Buffers, refs: Tensors
) -> Callable[[Tensor, Batch], tuple[Tensor, ...]]:
    """Return the function that gives a step's loss and gradient.

    Buffers change as they are used, so with them nothing can be replayed.
    """
    names = tuple(refs)

    def compute(weights: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        batch = Batch(*tensors[len(names) :])
        with torch.enable_grad():
            leaf = weights.detach().requires_grad_()
            own = dict(zip(names, tensors, strict=False))
            value = context.method.objective(context.network, leaf, buffers, batch, own)
            (gradient,) = torch.autograd.grad(value, leaf)
        return value.detach(), gradient

    step = compute
    if context.replays is not None and not buffers:
        step = context.replays.of(names, compute)
    given = refs.values()

    def call(weights: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        noise = () if batch.noise is None else (batch.noise,)
        return step(weights, *given, batch.x, batch.y, batch.scale, *noise)

    return call


def _private(
    context: ClientContext,
    round_: int,
    client: Client,
    weights: Tensor,
    batch: Batch,
    refs: Tensors,
    step: int,
) -> tuple[Tensor, Tensor]:
    """Return the loss and the private gradient of one step, as of a cohort of one."""
    assert context.private is not None
    sizes = np.array([len(client.y)])
    gradients = PrivateGradients(
        context.private, context.method, context.network, (), tuple(refs), (client.id,), sizes,
        context.settings, round_,
    )  # fmt: skip
    fields = [batch.x, batch.y, batch.scale, *([] if batch.noise is None else [batch.noise])]
    count, at = torch.tensor([len(batch.y)]), torch.tensor([step])
    rows = [tensor[None] for tensor in fields]
    losses, gradient = gradients(weights.detach()[None], *refs.values(), *rows, count, at)
    return losses[0], gradient[0]


@torch.no_grad()
def own_accuracy(
    network: FunctionalModel, vector: Tensor, client: Client, device: torch.device, chunk: int = 512
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


def _to(numbers: NDArray[np.float32] | None, device: torch.device) -> Tensor | None:
    """Return one client's random numbers of a step, if it has any."""
    return None if numbers is None else torch.from_numpy(numbers[0]).to(device)


def seed_layers(seed: int, device: torch.device) -> None:
    """Seed torch's own generators.

    ``torch.manual_seed`` also writes down, for each kind of accelerator that there is none of, by
    which way it was called: that takes a millisecond, as a step of a small network does.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def to_tensor(array: NDArray[Any]) -> Tensor:
    """Wrap an array without copying it; one mapped read-only from disk is copied when needed."""
    if array.dtype not in _TORCH_READS:
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)


_TORCH_READS = (np.uint8, np.int8, np.int16, np.int32, np.int64, np.float32)
