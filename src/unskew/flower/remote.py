"""The crew whose clients are nodes with unskew's app: their samples and states stay there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import RecordDict
from torch import Tensor

from unskew.engine.client import ClientContext
from unskew.engine.cohort import Result, Task
from unskew.engine.evaluate import ClientScores, Levels, has_personal_models
from unskew.engine.rounds import sent_down, sent_up
from unskew.engine.settings import Settings
from unskew.flower.backend import FlowerBackend
from unskew.flower.uploads import columns_of, read_upload, result_of, usable
from unskew.flower.wire import (
    ARRAYS,
    EVALUATE,
    MODEL,
    ORDER,
    SLOT,
    TRAIN,
    Order,
    Packing,
    Version,
)
from unskew.methods.common.base import Tensors
from unskew.runs.checkpoint import Position

_TICKET = "version"
"""The server keeps no client's state, only which version of it counts."""


@dataclass(frozen=True, eq=False, kw_only=True)
class NodeBackend(FlowerBackend):
    """Nodes that train by unskew's own code."""

    method: str
    settings: Settings

    def runner(self, context: ClientContext, stage: int, cohort: int) -> "NodeRunner":
        """Return what lets nodes train a stage."""
        del cohort
        return NodeRunner(self, context, stage)

    def tests(self, context: ClientContext, position: Position) -> Levels:
        """Let every node that has test samples measure on them; personal models stay there."""
        server, method = position.server, context.method
        assert server is not None
        model: Tensors = {"global": method.model(server)}
        letters, packing = {}, Packing()
        for k in np.flatnonzero(context.federation.test.sizes).tolist():
            tensors = model
            if has_personal_models(method, context.network):
                view = method.seen_by(server, k)
                slots = {f"{SLOT}{name}": slot for name, slot in view.slots.items()}
                tensors = {**model, "vector": view.vector, **slots}
            version = _version(position.states.get(k, {}))
            order = self.order(context, position.stage, position.round, k, version)
            letters[k] = RecordDict({ORDER: order.to_record(), ARRAYS: packing(tensors)})
        answers = self.nodes.ask(EVALUATE, letters, patient=False)
        return _levels(answers.contents)

    def order(
        self, context: ClientContext, stage: int, round_: int, client: int, state: Version | None
    ) -> Order:
        """Return what a client must know to do its part."""
        return Order(
            run=self.nodes.roster.run,
            method=self.method,
            settings=self.settings,
            stage=stage,
            round=round_,
            client=client,
            clients=len(context.federation),
            classes=context.federation.classes,
            layout=context.network.layout.fingerprint,
            noise=None if context.private is None else context.private.noise_multiplier,
            state=state,
        )


class NodeRunner:
    """Trains the clients of one stage where their samples are."""

    kind = "per client"

    def __init__(self, backend: NodeBackend, context: ClientContext, stage: int) -> None:
        self._backend, self._context, self._stage = backend, context, stage
        layout = context.network.layout
        self._up, self._down = sent_up(context.method, layout), sent_down(context.method, layout)

    def train(self, round_: int, tasks: Sequence[Task]) -> Result:
        """Send the tasks out, and make one result of the answers that can be used."""
        letters, packing = {}, Packing()
        for task in tasks:
            version = _version(task.state)
            order = self._backend.order(self._context, self._stage, round_, task.client, version)
            arrays = packing(task.payload, self._mask(task))
            letters[task.client] = RecordDict({ORDER: order.to_record(), ARRAYS: arrays})
        answers = self._backend.nodes.ask(TRAIN, letters, patient=True)
        size = self._context.network.layout.size if self._up is None else int(self._up.sum())
        undefined = self._context.method.may_be_undefined
        uploads, refused = usable(
            answers.contents,
            lambda content: read_upload(content, size, undefined),
            {task.client: task.payload[MODEL] for task in tasks},
            self._up,
            self._context.network.layout,
            self._backend.bound,
        )
        named = self._backend.nodes.named(refused, "rejected")
        tickets = {task.client: self._ticket(round_, task.state) for task in tasks}
        return result_of(
            tasks,
            uploads,
            tickets,
            self._context.network.layout.size,
            self._up,
            {**answers.refused, **named},
            answers.missing,
        )

    def close(self) -> None:
        """Nothing to release: nodes stay connected."""

    def _mask(self, task: Task) -> Tensor | None:
        """Mark what of the model this client does not have itself; None means all."""
        version = _version(task.state)
        if version is None or version[0] != self._stage:
            return None
        return self._down if "kept" in task.state else self._up

    def _ticket(self, round_: int, before: Tensors) -> Tensors:
        """Return what the server keeps of a client that keeps a new state."""
        ticket = {**before, _TICKET: torch.tensor([self._stage, round_])}
        if self._context.method.kept(self._context.network.layout) is not None:
            ticket["kept"] = torch.empty(0)
        return ticket


def _version(state: Tensors) -> Version | None:
    if _TICKET not in state:
        return None
    stage, round_ = state[_TICKET].tolist()
    return stage, round_


def _levels(contents: Mapping[int, RecordDict]) -> Levels:
    """Make a table a level of what nodes measured."""
    told = columns_of(contents)
    levels = {}
    for level in ("local", "personal"):
        start = f"{level}/"
        columns = {} if told is None else told.metrics
        own = {k.removeprefix(start): v for k, v in columns.items() if k.startswith(start)}
        if told is not None and own:
            levels[level] = ClientScores(told.clients, own)
    return levels
