"""The training of one client, as all runners but ``vectorised`` do it, and the loop over clients.

Flower nodes run the same code.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.composition.method import Method
from unskew.composition.values import Client, ExtraTraining, Finished, Start, Tensors, Trained
from unskew.data.federation import Federation
from unskew.engine.attacks import Attack
from unskew.engine.batches import BatchSchedule
from unskew.engine.cohort import ClientFailed, ClientTask, CohortResult
from unskew.engine.extras import ExtrasMatrix
from unskew.engine.hook_checks import failure_text
from unskew.engine.memory import return_freed_memory
from unskew.engine.metrics import NO_METRICS, MetricPlan
from unskew.engine.optimizer import make_optimizer
from unskew.engine.placement import (
    ModelOnDevice,
    Samples,
    is_accelerator,
    samples_on,
    take,
    to_device,
    to_tensor,
)
from unskew.engine.private_steps import PrivateGradients, PrivateStage, reject_exact_values
from unskew.engine.pure_hooks import CHECKED_ROUNDS, checking
from unskew.engine.settings import Settings
from unskew.engine.trace_cache import TraceCache
from unskew.models.functional import Batch, Buffers, FunctionalModel
from unskew.models.layout import Layout, rows_are_finite
from unskew.utils.rng import stream
from unskew.utils.threads import threads

_CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class ClientContext:
    """What a client's training needs and all clients and rounds of a stage share."""

    method: Method
    network: FunctionalModel
    federation: Federation
    settings: Settings
    device: torch.device
    attack: Attack | None = None
    attackers: frozenset[int] = frozenset()
    """The clients that carry out the attack."""
    private: PrivateStage | None = None
    """Set where local steps keep a privacy budget."""
    trains: Callable[[Layout], Tensor] | None = None
    """Marks the coordinates that may change, in place of :meth:`Method.trains`."""
    traces: TraceCache | None = None
    """Set where the steps of clients that train one by one may be traced."""
    runner: str | None = None
    """The name of the runner, if it is already resolved for this network."""
    bound: float | None = None
    """How many times further than the others a client's model may move; None: any distance."""
    metrics: MetricPlan = NO_METRICS
    """What is computed from predictions, in contexts for evaluation."""
    model_on_device: ModelOnDevice = field(default_factory=ModelOnDevice)
    """The global model, for training and evaluation."""

    @cached_property
    def sent_mask(self) -> Tensor | None:
        """Marks the coordinates that are sent; None means all."""
        return self.method.sent_mask(self.network.layout)

    @cached_property
    def extra_trainings(self) -> tuple["ClientContext", ...]:
        """The contexts of the extra trainings that come before the round's training."""
        return tuple(self.for_extra_training(each) for each in self.method.extra_trainings())

    def for_extra_training(self, extra: ExtraTraining) -> "ClientContext":
        """Return the context of an extra training, which draws its batches from its own seed."""
        changes: dict[str, object] = {"seed": int(stream(self.settings.seed, extra.name)) >> 1}
        if extra.epochs is not None:
            changes |= {"epochs": extra.epochs, "steps": None}
        settings = self.settings.model_copy(update=changes)
        traces = None if self.traces is None else TraceCache()
        return replace(
            self,
            method=extra.method,
            settings=settings,
            trains=extra.trains,
            traces=traces,
            metrics=NO_METRICS,  # its functions may not be picklable, as processes need them
        )

    def in_round(self, round_: int) -> "ClientContext":
        """Return the context of a round, in the first ones with hooks that are checked."""
        return self._checking if round_ < CHECKED_ROUNDS else self

    @cached_property
    def _checking(self) -> "ClientContext":
        return replace(self, method=checking(self.method))

    def client(self, k: int, round_: int) -> Client:
        """Return client k as the hooks see it."""
        x, y = self.federation.train.client(k)
        return Client(
            id=k,
            x=to_tensor(x),
            y=to_tensor(y),
            network=self.network,
            classes=self.federation.classes,
            seed=self.settings.seed,
            round=round_,
            lr=self.settings.lr_in(round_),
            sent_mask=self.sent_mask,
        )

    def samples(self, client: Client) -> tuple[Tensor, Tensor]:
        """Return a client's training samples, on the device if they fit there."""
        if not is_accelerator(self.device):
            return client.x, client.y
        train = self.federation.train
        rows = slice(train.offsets[client.id], train.offsets[client.id + 1])
        x, y = samples_on(self.device, train)
        return x[rows], y[rows]

    def schedule(
        self, clients: NDArray[np.int64], sizes: NDArray[np.int64], round_: int
    ) -> BatchSchedule:
        """Return the batches of clients in a round; private ones may have a secret seed."""
        settings, private = self.settings, self.private
        seed = settings.seed if private is None else private.seed(settings)
        couples = self.network.couples_samples
        return BatchSchedule(clients, sizes, settings, round_, couples=couples, seed=seed)

    @property
    def train_mask(self) -> Tensor | None:
        """Factors for the gradient: 1 where coordinates may change, else 0; None means all 1."""
        layout = self.network.layout
        mask, frozen = (self.trains or self.method.trains)(layout), layout.frozen
        if mask is None and frozen is None:
            return None
        factors = torch.ones(layout.trainable, device=self.device)
        if mask is not None:
            factors *= to_device(mask[: len(factors)], self.device)
        if frozen is not None:
            factors *= ~to_device(frozen[: len(factors)], self.device)
        return factors


class error_context:
    """Turns an exception in user or method code into one that names client, round and hook.

    A caller that loops over clients enters it once and sets ``client`` for each of them.
    """

    def __init__(self, client: int | str, round_: int, hook: str) -> None:
        self.client = client
        self._round, self._hook = round_, hook

    def __enter__(self) -> "error_context":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, ClientFailed):
            who = f"client {self.client}"
            failure = ClientFailed(failure_text(who, self._round, self._hook, error))
            failure.hook = self._hook
            raise failure from error


class Loop:
    """The sequential runner: trains one client after the other, in this process, in one thread.

    It is the slowest runner and the one to debug with: an error names the client and the hook. Its
    results equal those of worker processes bit for bit.
    """

    kind = "per client"

    def __init__(self, context: ClientContext) -> None:
        self._context = context

    def train(self, round_: int, tasks: Sequence[ClientTask]) -> CohortResult:
        """Train the clients of one round."""
        # Clients seed torch's global generator for layers such as Dropout; restore it afterwards.
        stack = torch.empty(len(tasks), self._context.network.layout.size)
        extras, done = ExtrasMatrix(len(tasks)), []
        with threads(1), torch.random.fork_rng(devices=[]):
            for row, task in enumerate(tasks):
                trained, finished = run_client(self._context, round_, task)
                stack[row] = trained.vector
                trained = replace(trained, vector=stack[row], refs={})
                done.append(
                    (trained, replace(finished, extras=extras.copied(row, finished.extras)))
                )
                del finished  # or its extras would be in use while the next client trains
                if done[-1][1].state:
                    return_freed_memory(stack, len(tasks) - len(done))
        return CohortResult(
            stack, [trained for trained, _ in done], [finished for _, finished in done]
        )

    def close(self) -> None:
        """Nothing to release."""


def run_client(context: ClientContext, round_: int, task: ClientTask) -> tuple[Trained, Finished]:
    """Run one client's extra trainings and then its training; return the result of the last."""
    context = context.in_round(round_)
    for extra in context.extra_trainings:
        task = after_extra_training(task, *_train_once(extra, round_, task))
    return _train_once(context, round_, task)


def after_extra_training(task: ClientTask, trained: Trained, finished: Finished) -> ClientTask:
    """Return the task with the new state; if the training diverged, with the previous state."""
    return replace(task, state=finished.state) if trained.finite else task


def _train_once(context: ClientContext, round_: int, task: ClientTask) -> tuple[Trained, Finished]:
    """Prepare, train and finish one client."""
    client = context.client(task.client, round_)
    with error_context(client.id, round_, "prepare"):
        start = context.method.prepare(client, task.payload, task.state)
    with error_context(client.id, round_, "training"):
        trained = train_locally(context, round_, client, start)
    with error_context(client.id, round_, "finish"):
        finished = context.method.finish(client, start, trained, task.state)
        reject_exact_values(context.private, finished.extras)
    return trained, finished


def train_locally(context: ClientContext, round_: int, client: Client, start: Start) -> Trained:
    """Take the client's local steps of one round from its start."""
    network, settings, device = context.network, context.settings, context.device
    size = np.array([len(client.y)])
    schedule = context.schedule(np.array([client.id]), size, round_)
    # Layers that draw random numbers (Dropout) use a stream of this client and round.
    seed_layers(int(stream(settings.seed, "layers", round_, client.id)) >> 1, device)
    trainable = network.layout.trainable
    vector = context.model_on_device.of(start.vector, device)
    weights, rest = vector[:trainable].clone(), vector[trainable:].clone()
    buffers = network.copy_buffers(rest)
    refs = {name: to_device(ref, device) for name, ref in start.refs.items()}
    x, y = context.samples(client)
    train_mask = context.train_mask
    optimizer = make_optimizer(settings, round_, train_mask)
    network.module.train()
    total = torch.zeros((), device=device)
    noise_per_sample = context.method.noise_per_sample(network)
    loss_and_gradient = _loss_and_gradient(context, buffers, refs, train_mask)
    for t, positions in enumerate(schedule.of_first_client()):
        rows = torch.from_numpy(positions)
        scale = torch.full((len(rows),), 1.0 / len(rows))
        if start.sample_weights is not None:
            scale = scale * start.sample_weights[rows]
        batch = Batch(
            network.inputs(take(x, rows, device)),
            take(y, rows, device).to(network.goal.target_dtype),
            to_device(scale, device),
            _noise_tensor(schedule.noise(t, len(rows), noise_per_sample), device),
        )
        if context.private is None:
            loss, gradient, *changed = loss_and_gradient(weights, batch)
            refs |= dict(zip(context.method.changing_refs, changed, strict=True))
        else:
            loss, gradient = _private_step(context, round_, client, weights, batch, refs, t)
        with torch.no_grad():
            total += loss
            optimizer.step(weights, gradient)
        del gradient  # or it would be in use while the next one is computed
    network.write_buffers(buffers, rest)
    vector = to_device(torch.cat([weights, rest]) if len(rest) else weights, _CPU)
    accuracy = None
    if context.method.needs_train_accuracy:
        accuracy = train_accuracy(network, vector, (x, y), device)
    return Trained(
        vector=vector,
        steps=len(schedule),
        # The loss has no noise: it would tell the server of single records.
        loss=float(total) / max(1, len(schedule)) if context.private is None else math.nan,
        accuracy=accuracy,
        finite=bool(rows_are_finite(vector)),
        effective_step=optimizer.effective_step(len(schedule), context.method.proximal_strength()),
        refs={name: to_device(refs[name], _CPU) for name in context.method.changing_refs},
    )


def _loss_and_gradient(
    context: ClientContext, buffers: Buffers, refs: Tensors, train_mask: Tensor | None
) -> Callable[[Tensor, Batch], tuple[Tensor, ...]]:
    """Return the function that computes a step's loss and gradient, and references that change.

    Training changes buffers in place, so a network with buffers is not traced.
    """
    names, method = tuple(refs), context.method

    def compute(weights: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        batch = Batch(*tensors[len(names) :])
        with torch.enable_grad():
            leaf = weights.detach().requires_grad_()
            named_refs = dict(zip(names, tensors, strict=False))
            slope, own_buffers = None, buffers
            if method.reads_gradient:
                slope = _slope(context, leaf, buffers, batch, named_refs, train_mask)
                # A batch enters running statistics once, at the weights themselves.
                own_buffers = {name: each.clone() for name, each in buffers.items()}
            loss, *changed = method.step_objective(
                context.network, leaf, own_buffers, batch, named_refs, slope
            )
            (gradient,) = torch.autograd.grad(loss, leaf)
        return loss.detach(), gradient, *changed

    step = compute
    if context.traces is not None and not buffers:
        step = context.traces.of(names, compute)

    def call(weights: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        noise = () if batch.noise is None else (batch.noise,)
        return step(weights, *refs.values(), batch.x, batch.y, batch.scale, *noise)

    return call


def _slope(
    context: ClientContext,
    leaf: Tensor,
    buffers: Buffers,
    batch: Batch,
    refs: Tensors,
    train_mask: Tensor | None,
) -> Tensor:
    """Return the gradient of the samples' loss at the weights, for methods that perturb them."""
    # Layers that draw random numbers (Dropout) draw the same ones for the step itself.
    with torch.random.fork_rng(devices=()):
        loss = context.method.samples_loss(context.network, leaf, buffers, batch, refs)
    (slope,) = torch.autograd.grad(loss, leaf)
    return slope if train_mask is None else slope * train_mask


def _private_step(
    context: ClientContext,
    round_: int,
    client: Client,
    weights: Tensor,
    batch: Batch,
    refs: Tensors,
    step: int,
) -> tuple[Tensor, Tensor]:
    """Return the loss and the private gradient of one step, computed as a cohort of one."""
    assert context.private is not None
    sizes = np.array([len(client.y)])
    gradients = PrivateGradients(
        context.private, context.method, context.network, (), tuple(refs), (client.id,), sizes,
        context.settings, round_,
    )  # fmt: skip
    fields = [batch.x, batch.y, batch.scale, *([] if batch.noise is None else [batch.noise])]
    counts, steps = torch.tensor([len(batch.y)]), torch.tensor([step])
    rows = [tensor[None] for tensor in fields]
    losses, gradient = gradients(weights.detach()[None], *refs.values(), *rows, counts, steps)
    return losses[0], gradient[0]


@torch.no_grad()
def train_accuracy(
    network: FunctionalModel,
    vector: Tensor,
    samples: Samples,
    device: torch.device,
    chunk: int = 512,
) -> float:
    """Return a model's accuracy on samples."""
    x, y = samples
    network.module.eval()
    vector = to_device(vector, device)
    trainable = network.layout.trainable
    weights, buffers = vector[:trainable], network.buffers_of(vector[trainable:])
    correct = 0
    for start in range(0, len(y), chunk):
        rows = slice(start, start + chunk)
        inputs = network.inputs(to_device(x[rows], device))
        predicted = network(weights, buffers, inputs).argmax(-1)
        correct += int((predicted == to_device(y[rows], device)).sum())
    network.module.train()
    return correct / max(1, len(y))


def _noise_tensor(noise: NDArray[np.float32] | None, device: torch.device) -> Tensor | None:
    """Return the noise of a step of a single client as a tensor, if there is any."""
    return None if noise is None else to_device(torch.from_numpy(noise[0]), device)


def seed_layers(seed: int, device: torch.device) -> None:
    """Seed torch's global generators.

    On a CPU this avoids ``torch.manual_seed``, which also records a stack trace for every
    accelerator that is missing: about a millisecond, as long as a step of a small network.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
