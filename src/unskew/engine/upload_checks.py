"""What the server receives in a round: which clients are rejected, and the uploads of the others.

A method declares what it receives (:attr:`Method.receives`); a client that sends anything else is
left out of the round before any aggregation rule sees it, and the others are not affected.
Simulations and Flower nodes share this.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.composition.accepted_sizes import AcceptedSizes, Sizes
from unskew.composition.upload_values import TRAIN_LOSS, KnownQuantity, Size, Value, norm_of
from unskew.composition.values import Server, Tensors
from unskew.engine.batches import local_steps
from unskew.engine.client import ClientContext
from unskew.engine.cohort import ClientTask, CohortResult
from unskew.engine.optimizer import make_optimizer
from unskew.engine.round_metrics import RoundOutcome
from unskew.engine.size_checks import MOVEMENT, SizeCheck, SizeLimits, check_sizes
from unskew.engine.traffic import hidden_from_server
from unskew.errors import UnskewError
from unskew.models.layout import Layout, TensorKind

_COUNTS_PER_STEP = 1000
"""A counter may advance by this much per local step; a forward pass advances it by one."""


@dataclass(frozen=True, eq=False)
class CheckedUploads:
    """Which clients of a round are rejected, and how large what the others sent is."""

    rejected: Mapping[int, str]
    sizes: Sizes
    undecided: bool
    """Whether two clients disagree and nothing tells which one is wrong."""


def check_uploads(
    context: ClientContext,
    round_: int,
    tasks: Sequence[ClientTask],
    result: CohortResult,
    samples: Sequence[int],
    accepted: AcceptedSizes,
) -> CheckedUploads:
    """Find the clients whose upload cannot be used, with the reason.

    ``accepted`` are the sizes of what was accepted in the earlier rounds of the stage.
    """
    reasons = {**result.missing, **result.unusable}
    for task, trained in zip(tasks, result.trained, strict=True):
        client = task.client
        if client in reasons:
            continue
        if trained.steps == 0 and context.federation.train.sizes[client] > 0:
            reasons[client] = "it has a single sample, and BatchNorm needs two"
        elif trained.steps == 0:
            reasons[client] = "it has no samples to train on"
        elif not trained.finite:
            reasons[client] = "its model has infinite or undefined numbers"
    found = unacceptable(context, round_, tasks, result, samples, reasons, accepted)
    rejected = reasons | {k: _by_name(context, k, why) for k, why in found.rejected.items()}
    sizes = {
        name: {k: size for k, size in each.items() if k not in rejected}
        for name, each in found.sizes.items()
    }
    return CheckedUploads(rejected, sizes, found.undecided)


def _by_name(context: ClientContext, client: int, reason: str) -> str:
    """Return a reason with the name of the node, for clients on other machines."""
    names = context.federation.client_names
    return (
        reason if names is None or context.federation.has_samples else f"{names[client]}: {reason}"
    )


def accepted_uploads(
    context: ClientContext,
    round_: int,
    server: Server,
    result: CohortResult,
    outcome: RoundOutcome,
) -> Uploads | None:
    """Collect the accepted uploads in order of clients; None if they are below the quorum."""
    rows = [row for row, k in enumerate(outcome.clients) if k not in outcome.rejected]
    if len(rows) < context.settings.quorum:
        return None
    stack = result.stack if len(rows) == len(result.stack) else result.stack[rows]
    hidden = hidden_from_server(context.method, context.network.layout)
    if hidden is not None:
        stack[:, hidden] = server.vector[hidden]  # these values never left the clients
    extras = _extras({outcome.clients[row]: result.finished[row].extras for row in rows})
    return Uploads(
        stack=stack,
        layout=context.network.layout,
        previous=context.model_on_device.of(server.vector, stack.device),
        samples=torch.tensor([outcome.samples[row] for row in rows], dtype=torch.float64),
        clients=tuple(outcome.accepted),
        classes=context.federation.classes,
        population=len(context.federation),
        seed=context.settings.seed,
        round=round_,
        train_loss=_column([outcome.train_loss[row] for row in rows]),
        train_accuracy=_column([result.trained[row].accuracy for row in rows]),
        label_counts=torch.stack(extras["label_counts"]) if "label_counts" in extras else None,
        max_share=context.settings.max_share,
        extras=extras,
    )


def _column(values: Sequence[float | None]) -> Tensor | None:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return torch.tensor(known, dtype=torch.float64) if len(known) == len(values) else None


def _extras(sent: Mapping[int, Tensors]) -> dict[str, list[Tensor]]:
    """Return what clients sent besides their models, by name; all must send the same names."""
    names = dict.fromkeys(name for each in sent.values() for name in each)
    for client, each in sent.items():
        for name in names:
            if name not in each:
                raise UnskewError(
                    f"client {client} sent no {name!r}, which others sent: in finish, all must "
                    "return the same extras"
                )
    return {name: [each[name] for each in sent.values()] for name in names}


def unacceptable(
    context: ClientContext,
    round_: int,
    tasks: Sequence[ClientTask],
    result: CohortResult,
    samples: Sequence[int],
    skip: Mapping[int, str],
    accepted: AcceptedSizes,
) -> CheckedUploads:
    """Find the clients that sent something other than their method declares, with the reason.

    Clients in ``skip`` are rejected already.
    """
    declared = context.method.receives
    rows = {task.client: row for row, task in enumerate(tasks) if task.client not in skip}
    model = _ModelSizes(context, tasks, result)
    moved = model.check_movement(rows, accepted)
    reasons = dict(moved.wrong)
    rows = {k: row for k, row in rows.items() if k not in reasons}
    reasons |= _wrong_buffers(context, round_, tasks, result, samples, rows)
    checks, sizes = [moved], {MOVEMENT: moved.sizes} if moved.sizes else {}
    losses = {k: abs(result.trained[row].loss) for k, row in rows.items()}
    if len(declared) == 1 and _have_usual_losses(list(losses.values())):
        return CheckedUploads(reasons, sizes | {"train_loss": losses}, moved.undecided)
    values = _Values(context, round_, tasks, result, samples)
    sent = {k: values.of(row) for k, row in rows.items() if k not in reasons}
    reasons |= _absent(declared, sent)
    norms: dict[str, dict[int, float]] = {
        name: {} for name, value in declared.items() if value.times is not None
    }
    for k, each in sent.items():
        for name in declared.keys() & each.keys() if k not in reasons else ():
            fault = declared[name].fault(each[name], values.sizes, values.known(rows[k]))
            if fault is not None:
                reasons[k] = f"its {name!r} {fault}"
                break
            if name in norms:
                norms[name][k] = norm_of(each[name])
    for name, found in norms.items():
        finite = {k: n for k, n in found.items() if k not in reasons and math.isfinite(n)}
        check = check_sizes(finite, model.limits(name, declared[name], finite), accepted)
        reasons |= check.wrong
        checks.append(check)
        sizes[name] = check.sizes
    return CheckedUploads(reasons, sizes, any(check.undecided for check in checks))


class _ModelSizes:
    """The model that was broadcast, with whose size models and values are compared."""

    def __init__(
        self, context: ClientContext, tasks: Sequence[ClientTask], result: CohortResult
    ) -> None:
        self._context, self._tasks, self._result = context, tasks, result

    def check_movement(self, rows: Mapping[int, int], accepted: AcceptedSizes) -> SizeCheck:
        """Check how far the models moved. Counters do not count as movement."""
        bound, layout = self._context.bound, self._context.network.layout
        if bound is None or not rows:
            return SizeCheck()
        mask = ~layout.mask(TensorKind.COUNTER)
        hidden = hidden_from_server(self._context.method, layout)
        if hidden is not None:
            mask &= ~hidden
        distances, size = {}, 0.0
        for k, row in rows.items():
            sent = self._tasks[row].payload["model"].double()[mask]
            moved = self._result.stack[row].double()[mask] - sent
            distances[k] = float(torch.linalg.vector_norm(moved))
            size = max(size, float(torch.linalg.vector_norm(sent)))
        return check_sizes(distances, SizeLimits.of_movement(bound, size), accepted)

    def limits(self, name: str, value: Value, sizes: Mapping[int, float]) -> SizeLimits:
        """Return the limits of a value; the size of the model counts where the replies are few."""
        few = len(sizes) < 3 or sum(size > 0 for size in sizes.values()) < 3
        return SizeLimits.of_value(name, value, self._size if few else 0.0)

    @cached_property
    def _size(self) -> float:
        mask = ~self._context.network.layout.mask(TensorKind.COUNTER)
        models = {id(task.payload["model"]): task.payload["model"] for task in self._tasks}
        return max(float(torch.linalg.vector_norm(m.double()[mask])) for m in models.values())


def _have_usual_losses(losses: Sequence[float]) -> bool:
    """Return whether all training losses are acceptable, without looking at each of them."""
    sizes = torch.tensor(losses, dtype=torch.float64).abs()
    limit = TRAIN_LOSS.floor * (TRAIN_LOSS.times or math.inf)
    return bool((sizes <= limit).all())  # False if one is undefined


class _Values:
    """What clients sent besides their models, and what the server knows about it."""

    def __init__(
        self,
        context: ClientContext,
        round_: int,
        tasks: Sequence[ClientTask],
        result: CohortResult,
        samples: Sequence[int],
    ) -> None:
        self._context, self._tasks, self._result = context, tasks, result
        self._samples = samples
        self._optimizer = make_optimizer(context.settings, round_, None)
        self._steps = _steps(context, samples)
        # A cache of a bound method would be a cycle, which keeps the uploads until it is collected.
        self._effective_steps: dict[int, float] = {}
        declared = context.method.receives.values()
        self._needed = {each.sums_to for each in declared} | {each.at_most for each in declared}
        layout, sent_mask = context.network.layout, context.sent_mask
        self._shared_mask = None if sent_mask is None else sent_mask[: layout.trainable]
        shared = layout.trainable if sent_mask is None else int(sent_mask[: layout.trainable].sum())
        heads = [each for each in layout if each.kind is TensorKind.HEAD and len(each.shape) == 2]
        self.sizes: Mapping[Size, int] = {
            "classes": context.federation.classes,
            "shared": shared,
            "features": heads[0].shape[1] if heads else 0,
        }

    def of(self, row: int) -> dict[str, Tensor]:
        """Return the values of one client; an undefined loss counts as none."""
        trained, values = self._result.trained[row], dict(self._result.finished[row].extras)
        if not math.isnan(trained.loss):
            values["train_loss"] = torch.tensor(trained.loss, dtype=torch.float64)
        if trained.accuracy is not None:
            values["train_accuracy"] = torch.tensor(trained.accuracy, dtype=torch.float64)
        return values

    def known(self, row: int) -> Mapping[KnownQuantity, float]:
        """Return what the server knows of one client."""
        known: dict[KnownQuantity, float] = {"samples": float(self._samples[row])}
        if "effective step" in self._needed:  # it is found by simulating every step
            known["effective step"] = self._effective_step(self._steps[row])
        if "squared movement" in self._needed:
            known["squared movement"] = self._squared_movement(row)
        return known

    def _squared_movement(self, row: int) -> float:
        """Return the squared length of the update of the parameters that clients share."""
        trainable = self._context.network.layout.trainable
        before = self._tasks[row].payload["model"][:trainable]
        moved = self._result.stack[row][:trainable].double() - before.double()
        shared = moved if self._shared_mask is None else moved[self._shared_mask]
        return float(shared.square().sum())

    def _effective_step(self, steps: int) -> float:
        if steps not in self._effective_steps:
            found = self._optimizer.effective_step(steps, self._context.method.proximal_strength())
            self._effective_steps[steps] = float(steps) if found is None else found
        return self._effective_steps[steps]


def _steps(context: ClientContext, samples: Sequence[int]) -> list[int]:
    sizes = torch.tensor(samples, dtype=torch.int64).numpy()
    couples = context.network.couples_samples
    steps: list[int] = local_steps(sizes, context.settings, couples=couples).tolist()
    return steps


def _absent(
    declared: Mapping[str, Value], sent: Mapping[int, Mapping[str, Tensor]]
) -> dict[int, str]:
    """Reject clients that left out a value, or sent an optional one that most did not send."""
    reasons: dict[int, str] = {}
    for name, value in declared.items():
        senders = sum(name in each for each in sent.values())
        expected = not value.optional or 2 * senders > len(sent)
        if senders == (len(sent) if expected else 0):
            continue
        if not expected and name == "train_loss":
            continue  # custom training loops need not report it
        for k, each in sent.items():
            if (name in each) != expected:
                verb = "sent no" if expected else "sent an unexpected"
                reasons.setdefault(k, f"it {verb} {name!r}")
    return reasons


def _wrong_buffers(
    context: ClientContext,
    round_: int,
    tasks: Sequence[ClientTask],
    result: CohortResult,
    samples: Sequence[int],
    rows: Mapping[int, int],
) -> dict[int, str]:
    """Reject models with negative variances, or with counters that no training can reach."""
    layout = context.network.layout
    if not layout.buffers:
        return {}
    hidden = hidden_from_server(context.method, layout)
    wrong: dict[int, str] = {}
    negative = {
        row for each in _variances(layout, hidden) for row in _rows(result.stack[:, each] < 0)
    }
    wrong |= {
        k: "its model has a negative running variance" for k, row in rows.items() if row in negative
    }
    counters = layout.counters
    if counters.start == counters.stop or (hidden is not None and bool(hidden[counters].any())):
        return wrong
    counts = result.stack[:, counters]
    no_counts = _rows((counts < 0) | (counts != counts.round()))
    largest: list[float] = counts.amax(1).tolist()
    before = _largest_counters_sent(context, tasks, counters)
    steps = _steps(context, samples)
    for k, row in rows.items():
        advance = _COUNTS_PER_STEP * max(1, steps[row]) * (round_ + 1)
        if row in no_counts or largest[row] > before[row] + advance:
            wrong[k] = "its model has a counter that its local steps cannot reach"
    return wrong


def _rows(marked: Tensor) -> set[int]:
    """Return the rows in which any element is marked."""
    rows: list[int] = marked.any(1).nonzero().flatten().tolist()
    return set(rows)


def _largest_counters_sent(
    context: ClientContext, tasks: Sequence[ClientTask], counters: slice
) -> list[float]:
    """Return the largest counter that each client received; 0 where counters stay on clients."""
    if context.sent_mask is not None and not bool(context.sent_mask[counters].any()):
        return [0.0] * len(tasks)
    models = [task.payload["model"] for task in tasks]
    found = {
        id(model): float(model[counters].max()) for model in {id(m): m for m in models}.values()
    }
    return [found[id(model)] for model in models]


def _variances(layout: Layout, hidden: Tensor | None) -> list[slice]:
    return [
        entry.slice
        for entry in layout.buffers
        if entry.kind is TensorKind.NORM_STATISTIC
        and entry.name.endswith("running_var")
        and not (hidden is not None and bool(hidden[entry.slice].any()))
    ]
