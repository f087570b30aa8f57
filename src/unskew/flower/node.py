"""A node's part of a round: the engine's own code for one client, between two messages."""

import secrets
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    MetricRecord,
    MetricRecordValues,
    RecordDict,
)
from torch import Tensor, nn

from unskew.engine.client import ClientContext
from unskew.engine.cohort import Task
from unskew.engine.evaluate import has_personal_models, score
from unskew.engine.loop import Loop
from unskew.engine.model_factory import make_module
from unskew.engine.personal import personal_models
from unskew.engine.private_steps import PrivateStage
from unskew.engine.rounds import hidden_from_server, sent_down, sent_up
from unskew.engine.runners import choose_device
from unskew.engine.stage import client_context, rounds_of
from unskew.flower.site import Site
from unskew.flower.state_store import NodeStateStore
from unskew.flower.wire import (
    ARRAYS,
    EXTRA,
    METRICS,
    MODEL,
    REFUSAL,
    SLOT,
    Order,
    Refusal,
    to_arrays,
    to_tensors,
)
from unskew.methods.common.base import Finished, Method, Server, Stage, Tensors, Trained
from unskew.methods.common.registry import name_of
from unskew.runs.checkpoint import Position
from unskew.runs.states import ClientStates

Figures = dict[str, MetricRecordValues]

_HIDDEN = "unskew.hidden"
"""In a node's state: the start of what the server never sees, which is sent just once."""


@dataclass(frozen=True, eq=False)
class Node:
    """One client of a federation, on the machine that has its samples."""

    site: Site
    method: Method
    model: str | nn.Module | None
    device: str
    folder: Path | None
    """Where states are written down; None: nowhere."""
    secret_noise: bool
    """Whether the noise of private stages is drawn here, or from the run's seed."""

    def train(self, order: Order, arrays: ArrayRecord, context: Context) -> RecordDict:
        """Take part in a round; what is kept stays here."""
        client = self.context(order)
        if order.round >= rounds_of(self.method.stages()[order.stage], client.settings):
            raise Refusal(f"the stage is over before round {order.round + 1}")
        book = NodeStateStore(context, self.folder, order.run, self.site.name)
        state = dict(book.read(order.state))
        hidden = hidden_from_server(client.method, client.network.layout)
        payload = to_tensors(arrays)
        payload[MODEL] = _whole(payload[MODEL], client, state)
        start = None if hidden is None else payload[MODEL][hidden]
        state.pop(_HIDDEN, None)
        result = Loop(client).train(order.round, [Task(order.client, payload, state)])
        trained, finished = result.trained[0], result.finished[0]
        kept = dict(finished.state)
        if start is not None:
            kept[_HIDDEN] = start
        keeps = bool(kept) and trained.finite and trained.steps > 0
        if keeps:
            book.write((order.stage, order.round), order.state, kept)
        return _reply(client, order, trained, finished, keeps=keeps)

    def evaluate(self, order: Order, arrays: ArrayRecord, context: Context) -> RecordDict:
        """Measure the global model and the client's own on its test samples."""
        client, tensors = self.context(order), to_tensors(arrays)
        x, y = client.federation.test.client(order.client)
        local = score(client.network, tensors["global"], x, y, client.device).means()
        personal = local
        if has_personal_models(client.method, client.network):
            book = NodeStateStore(context, self.folder, order.run, self.site.name)
            state = {k: t for k, t in book.read(order.state).items() if k != _HIDDEN}
            slots = {
                name.removeprefix(SLOT): tensor
                for name, tensor in tensors.items()
                if name.startswith(SLOT)
            }
            position = Position(
                stage=order.stage,
                round=order.round,
                server=Server(tensors["vector"], slots),
                states=ClientStates().updated({order.client: state} if state else {}),
            )
            (model,) = personal_models(client, position, [order.client])
            personal = score(client.network, model, x, y, client.device).means()
        told: Figures = {f"local/{name}": value for name, value in local.items()}
        told |= {f"personal/{name}": value for name, value in personal.items()}
        told["num-examples"] = len(y)
        return RecordDict({METRICS: MetricRecord(told)})

    def context(self, order: Order) -> ClientContext:
        """Lay out the stage that the server plays, after making sure that it means the same."""
        if order.method != self._name:
            raise Refusal(f"it runs {self._name}, and the server asks for {order.method}")
        federation = self.site.as_client(order.client, order.clients, order.classes)
        settings = order.settings.model_copy(update={"runner": "loop", "device": self.device})
        device = choose_device(settings)
        _, module = make_module(federation, self.model, settings.seed)
        stages = self.method.stages()
        stage, last = stages[order.stage], order.stage == len(stages) - 1
        context = client_context(stage, module.to(device), federation, settings, device, last=last)
        if context.network.layout.fingerprint != order.layout:
            raise Refusal("its network is not the server's: tensors, shapes or kinds differ")
        context.network.goal.check(federation)
        return context if stage.privacy is None else self._private(context, stage, order)

    def _private(self, context: ClientContext, stage: Stage, order: Order) -> ClientContext:
        """Let steps be private, with the noise of the client that needs most."""
        assert stage.privacy is not None
        sizes, rounds = context.federation.train.sizes, rounds_of(stage, context.settings)
        own = PrivateStage.of(stage.privacy, stage.name, sizes, context.settings, rounds)
        noise = order.noise or 0.0
        secret = secrets.randbits(62) if self.secret_noise else None
        asked = replace(own, noise_multiplier=noise, secret=secret)
        if asked.spent(rounds)["epsilon"] > stage.privacy.epsilon:
            raise Refusal(
                f"its budget needs noise {own.noise_multiplier:.4g}, and the server asks for "
                f"{noise:.4g}"
            )
        return replace(context, private=asked)

    @cached_property
    def _name(self) -> str:
        return name_of(self.method)


def refusal(reason: str) -> RecordDict:
    """Return the content of an answer that says no."""
    return RecordDict({REFUSAL: ConfigRecord({"reason": reason})})


def _whole(model: Tensor, context: ClientContext, state: Tensors) -> Tensor:
    """Return a received model with everything that was not sent in its place."""
    method, layout = context.method, context.network.layout
    if len(model) == layout.size:
        return model
    mask = sent_down(method, layout) if "kept" in state else sent_up(method, layout)
    if mask is None or int(mask.sum()) != len(model):
        raise Refusal(f"it got a model of {len(model)} numbers, which does not fit its network")
    whole = torch.zeros(layout.size)
    hidden = hidden_from_server(method, layout)
    if hidden is not None:
        whole[hidden] = state[_HIDDEN]
    whole[mask] = model
    return whole


def _reply(
    context: ClientContext, order: Order, trained: Trained, finished: Finished, *, keeps: bool
) -> RecordDict:
    """Return what leaves the node: the coordinates that travel, the extras, a few figures."""
    mask = sent_up(context.method, context.network.layout)
    vector = trained.vector if mask is None else trained.vector[mask]
    extras = {f"{EXTRA}{name}": tensor for name, tensor in finished.extras.items()}
    figures: Figures = {
        "num-examples": int(context.federation.train.sizes[order.client]),
        "steps": trained.steps,
        "loss": trained.loss,
        "finite": int(trained.finite),
        "keeps": int(keeps),
    }
    if trained.accuracy is not None:
        figures["accuracy"] = trained.accuracy
    return RecordDict(
        {ARRAYS: to_arrays({MODEL: vector, **extras}), METRICS: MetricRecord(figures)}
    )
