"""One round: draw a cohort, broadcast, train the clients, check their uploads, aggregate."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.composition.method import Method
from unskew.composition.values import Server, Tensors
from unskew.engine.client import ClientContext
from unskew.engine.cohort import ClientTask, CohortResult, Runner, draw_cohort
from unskew.engine.hook_checks import checked_payload, checked_server
from unskew.engine.received import unacceptable
from unskew.errors import UnskewError
from unskew.models.layout import Layout, rows_are_finite
from unskew.models.masks import none_if_empty
from unskew.runs.cost import ModelSize, Traffic, add_up, client_traffic


class ServerFailed(UnskewError):
    """A method's code raised on the server; the message names the round and the hook."""


@dataclass(frozen=True, eq=False)
class RoundOutcome:
    """What happened in one round, for the run to record."""

    clients: Sequence[int]
    samples: Sequence[int]
    train_loss: Sequence[float]
    steps: Sequence[int]
    traffic: Sequence[Traffic]
    rejected: Mapping[int, str] = field(default_factory=dict)
    missing: Mapping[int, str] = field(default_factory=dict)
    """The clients that never replied, by reason; they are among the rejected too."""
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    kept_model: str | None = None
    """Why the previous global model is kept; None if there is a new one."""

    @cached_property
    def accepted(self) -> list[int]:
        """The clients whose uploads were used."""
        return [k for k in self.clients if k not in self.rejected]

    @property
    def total(self) -> Traffic:
        """The traffic of all clients together."""
        return add_up(self.traffic)

    @property
    def mean_loss(self) -> float | None:
        """The sample-weighted mean training loss of the accepted clients; None without any."""
        rows = [row for row, k in enumerate(self.clients) if k not in self.rejected]
        if not rows:
            return None
        losses, samples = np.array(self.train_loss)[rows], np.array(self.samples)[rows]
        return float((losses * samples).sum() / samples.sum())


def run_round(
    context: ClientContext,
    runner: Runner,
    round_: int,
    server: Server,
    states: Mapping[int, Tensors],
) -> tuple[Server, dict[int, Tensors], RoundOutcome]:
    """Run one round; return the server, the clients' new states, and the outcome.

    ``states`` are those of all clients. A rejected client keeps its previous state, since whatever
    corrupted its model may have corrupted its new state too. Where the previous model is kept, so
    are all states: server and clients must agree on what happened.
    """
    method, layout = context.method, context.network.layout
    clients, settings = len(context.federation), context.settings
    among = method.candidates(clients, round_, settings.seed)
    cohort = draw_cohort(settings, clients, round_, among)
    with _server_error_context(round_, "broadcast"):
        payloads = {k: checked_payload(method.broadcast(server, k)) for k in cohort}
    tasks = [ClientTask(k, payloads[k], states.get(k, {})) for k in cohort]
    result = runner.train(round_, tasks)
    result = _apply_attack(context, cohort, result)
    sizes = result.samples
    if sizes is None:
        sizes = context.federation.train.sizes[cohort].tolist()
    rejected = _rejected(context, cohort, result)
    hidden = hidden_from_server(method, layout)
    found = unacceptable(context, round_, tasks, result, sizes, hidden, rejected)
    rejected |= {k: _by_name(context, k, why) for k, why in found.items()}
    new_states = {
        k: finished.state
        for k, finished in zip(cohort, result.finished, strict=True)
        if finished.state and k not in rejected
    }
    outcome = RoundOutcome(
        clients=cohort,
        samples=sizes,
        train_loss=[trained.loss for trained in result.trained],
        steps=[trained.steps for trained in result.trained],
        traffic=_traffic(method, layout, tasks, result),
        rejected=rejected,
        missing=result.missing,
    )
    uploads = _uploads(context, server, result, outcome)
    if uploads is None:
        reason = f"fewer than {context.settings.quorum} usable uploads; the previous model is kept"
        return server, {}, replace(outcome, kept_model=reason)
    try:
        with _server_error_context(round_, "aggregate"):
            updated, diagnostics = checked_server(method.aggregate(server, uploads), server)
    except ServerFailed:
        raise
    except UnskewError as error:
        if not rejected:
            raise
        reason = f"after rejections, {error}; the previous model is kept"
        return server, {}, replace(outcome, kept_model=reason)
    outcome = replace(outcome, diagnostics=diagnostics)
    updated = _restore_hidden(server, updated, hidden)
    if not bool(rows_are_finite(updated.vector)):
        reason = "the new model has infinite or undefined numbers; the previous one is kept"
        return server, {}, replace(outcome, kept_model=reason)
    return updated, new_states, outcome


@contextmanager
def _server_error_context(round_: int, hook: str) -> Iterator[None]:
    """Turn an exception in a method's code into one that names the round and the hook."""
    try:
        yield
    except UnskewError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        where = f"the server failed in round {round_ + 1}, in {hook}"
        raise ServerFailed(f"{where}: {reason}") from error


def _apply_attack(
    context: ClientContext, cohort: Sequence[int], result: CohortResult
) -> CohortResult:
    """Let the attackers, if there are any, change what they upload."""
    if context.attack is None:
        return result
    trained = list(result.trained)
    for row, client in enumerate(cohort):
        if client in context.attackers:
            context.attack.on_upload(result.stack[row], context.network.layout)
            finite = bool(rows_are_finite(result.stack[row]))
            trained[row] = replace(trained[row], finite=finite)
    return replace(result, trained=trained)


def _traffic(
    method: Method, layout: Layout, tasks: Sequence[ClientTask], result: CohortResult
) -> list[Traffic]:
    """Return the traffic of each client.

    Coordinates that clients share on upload are sent down only to clients that keep none yet.
    """
    up = ModelSize(layout, sent_up(method, layout))
    down = ModelSize(layout, sent_down(method, layout))
    if not method.sends_model:
        up = down = ModelSize(layout, layout.mask())
    # Without payload and extras, the traffic depends only on whether the client keeps coordinates.
    model_only = {True: client_traffic(down, (), (), up), False: client_traffic(up, (), ())}
    traffic = [
        model_only["kept" in task.state]
        if len(task.payload) == 1 and not finished.extras
        else client_traffic(
            down if "kept" in task.state else up,
            [tensor for name, tensor in task.payload.items() if name != "model"],
            list(finished.extras.values()),
            up,
        )
        for task, finished in zip(tasks, result.finished, strict=True)
    ]
    return [
        replace(each, parameters_up=0, bytes_up=0) if task.client in result.missing else each
        for task, each in zip(tasks, traffic, strict=True)
    ]


def sent_up(method: Method, layout: Layout) -> Tensor | None:
    """Mark the coordinates of the model that a client uploads; None means all."""
    hidden = hidden_from_server(method, layout)
    return None if hidden is None else ~hidden


def sent_down(method: Method, layout: Layout) -> Tensor | None:
    """Mark the coordinates that are sent to a client that keeps its own values of the rest."""
    shares_on_upload = method.shares_on_upload(layout)
    return sent_up(method, layout) if shares_on_upload is None else method.travels(layout)


def hidden_from_server(method: Method, layout: Layout) -> Tensor | None:
    """Mark the coordinates that the server never receives; None means none."""
    travels, shares_on_upload = method.travels(layout), method.shares_on_upload(layout)
    if travels is None:
        return None
    return none_if_empty(~travels if shares_on_upload is None else ~travels & ~shares_on_upload)


def _restore_hidden(before: Server, after: Server, hidden: Tensor | None) -> Server:
    """Return the server with the coordinates it never receives unchanged to the bit.

    There, a rule averages equal values, and the mean may differ from them in the last digit.
    """
    if hidden is None:
        return after
    return replace(after, vector=torch.where(hidden, before.vector, after.vector))


def _rejected(
    context: ClientContext, cohort: Sequence[int], result: CohortResult
) -> dict[int, str]:
    """Return the clients whose upload cannot be used, with the reason."""
    reasons = {**result.missing, **result.unusable}
    for client, trained in zip(cohort, result.trained, strict=True):
        if client in reasons:
            continue
        if trained.steps == 0 and context.federation.train.sizes[client] > 0:
            reasons[client] = "it has a single sample, and BatchNorm needs two"
        elif trained.steps == 0:
            reasons[client] = "it has no samples to train on"
        elif not trained.finite:
            reasons[client] = "its model has infinite or undefined numbers"
    return reasons


def _by_name(context: ClientContext, client: int, reason: str) -> str:
    """Return a reason with the name of the node, for clients on other machines."""
    names = context.federation.client_names
    return (
        reason if names is None or context.federation.has_samples else f"{names[client]}: {reason}"
    )


def _uploads(
    context: ClientContext, server: Server, result: CohortResult, outcome: RoundOutcome
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
        previous=server.vector,
        samples=torch.tensor([outcome.samples[row] for row in rows], dtype=torch.float64),
        clients=tuple(outcome.accepted),
        classes=context.federation.classes,
        population=len(context.federation),
        train_loss=_column([outcome.train_loss[row] for row in rows]),
        train_accuracy=_column([result.trained[row].accuracy for row in rows]),
        label_counts=torch.stack(extras["label_counts"]) if "label_counts" in extras else None,
        max_share=context.settings.max_share,
        extras=extras,
    )


def _column(values: Sequence[float | None]) -> Tensor | None:
    known = [value for value in values if value is not None]
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
