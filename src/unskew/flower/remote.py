"""The backend for nodes with unskew's app: their samples and states stay on the nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import RecordDict
from torch import Tensor

from unskew.composition.values import Tensors
from unskew.engine.client import ClientContext
from unskew.engine.cohort import ClientTask, CohortResult
from unskew.engine.evaluate import ClientScores, Levels
from unskew.engine.metrics import MetricPlan
from unskew.engine.settings import Settings
from unskew.engine.traffic import sent_down, sent_up
from unskew.flower.backend import FlowerBackend
from unskew.flower.requests import Request
from unskew.flower.uploads import cohort_result, read_upload, read_uploads, tabulate_metrics
from unskew.flower.wire import (
    ARRAYS,
    EVALUATE,
    REQUEST,
    SERVER_STATE,
    TRAIN,
    ArrayPacker,
    StateVersion,
)
from unskew.runs.checkpoint import Position

_LEVELS = ("local", "personal")
_VERSION = "version"
"""In place of a client's state the server stores only which version of it counts."""


@dataclass(frozen=True, eq=False, kw_only=True)
class NodeBackend(FlowerBackend):
    """Nodes that train with unskew's code."""

    method: str
    settings: Settings
    models_are_kept: bool = False
    """Whether nodes keep the models that they use when the run ends."""

    def runner(self, context: ClientContext, stage_index: int, cohort: int) -> "NodeRunner":
        """Return the runner that trains a stage on the nodes."""
        del cohort
        return NodeRunner(self, context, stage_index)

    def evaluate_on_nodes(self, context: ClientContext, position: Position) -> Levels:
        """Evaluate on every node that has test samples; personal models stay on the node.

        The last time, all nodes are asked, so that each keeps the model that it uses.
        """
        server, method = position.server, context.method
        assert server is not None
        model: Tensors = {"global": method.model(server)}
        contents, pack = {}, ArrayPacker()
        sizes = context.federation.test.sizes
        keep = self.models_are_kept and position.round >= context.settings.rounds
        for k in range(len(sizes)) if keep else np.flatnonzero(sizes).tolist():
            tensors = model
            if method.has_personal_models(context.network.layout):
                view = method.seen_by(server, k)
                server_state = {
                    f"{SERVER_STATE}{name}": tensor for name, tensor in view.state.items()
                }
                tensors = {**model, "vector": view.vector, **server_state}
            version = _version(position.states.get(k, {}))
            request = self.request(context, position.stage, position.round, k, version)
            request = request.model_copy(update={"keep": keep})
            contents[k] = RecordDict({REQUEST: request.to_record(), ARRAYS: pack(tensors)})
        replies = self.ask_to_evaluate(EVALUATE, contents)
        measured = {k: content for k, content in replies.contents.items() if sizes[k]}
        return _levels(measured, context.metrics)

    def request(
        self,
        context: ClientContext,
        stage_index: int,
        round_: int,
        client: int,
        state: StateVersion | None,
    ) -> Request:
        """Return the request to one client."""
        return Request(
            run=self.nodes.registry.run,
            method=self.method,
            settings=self.settings,
            stage_index=stage_index,
            round=round_,
            client=client,
            clients=len(context.federation),
            classes=context.federation.classes,
            layout=context.network.layout.fingerprint,
            target=(
                context.federation.target_center_and_scale
                if context.federation.is_regression
                else None
            ),
            noise=None if context.private is None else context.private.noise_multiplier,
            state=state,
        )


class NodeRunner:
    """Trains the clients of one stage on the nodes that have their samples."""

    kind = "per client"

    def __init__(self, backend: NodeBackend, context: ClientContext, stage_index: int) -> None:
        self._backend, self._context, self._stage_index = backend, context, stage_index
        layout = context.network.layout
        self._up, self._down = sent_up(context.method, layout), sent_down(context.method, layout)

    def train(self, round_: int, tasks: Sequence[ClientTask]) -> CohortResult:
        """Send the tasks to the nodes and combine the usable replies into one result."""
        contents, pack = {}, ArrayPacker()
        for task in tasks:
            version = _version(task.state)
            request = self._backend.request(
                self._context, self._stage_index, round_, task.client, version
            )
            arrays = pack(task.payload, self._download_mask(task))
            contents[task.client] = RecordDict({REQUEST: request.to_record(), ARRAYS: arrays})
        replies = self._backend.nodes.request(TRAIN, contents, wait_for_quorum=True)
        size = self._context.network.layout.size if self._up is None else int(self._up.sum())
        sizes = self._context.federation.train.sizes
        uploads, rejected = read_uploads(
            replies.contents,
            lambda k, content: read_upload(content, size, int(sizes[k])),
            self._context.method.receives.keys(),
        )
        rejected = self._backend.nodes.with_names(rejected)
        return cohort_result(
            tasks,
            uploads,
            {task.client: self._new_state(round_, task.state) for task in tasks},
            self._context.network.layout.size,
            self._up,
            {**replies.refused, **rejected},
            replies.missing,
        )

    def close(self) -> None:
        """Do nothing: the nodes stay connected."""

    def _download_mask(self, task: ClientTask) -> Tensor | None:
        """Select the coordinates of the model that the client does not have; None means all."""
        version = _version(task.state)
        if version is None or version[0] != self._stage_index:
            return None
        return self._down if "kept" in task.state else self._up

    def _new_state(self, round_: int, before: Tensors) -> Tensors:
        """Return what the server stores for a client whose node has a new state."""
        state = {**before, _VERSION: torch.tensor([self._stage_index, round_])}
        if self._context.method.kept(self._context.network.layout) is not None:
            state["kept"] = torch.empty(0)
        return state


def _version(state: Tensors) -> StateVersion | None:
    if _VERSION not in state:
        return None
    stage_index, round_ = state[_VERSION].tolist()
    return stage_index, round_


def _levels(contents: Mapping[int, RecordDict], plan: MetricPlan) -> Levels:
    """Return one table per level of what the nodes measured."""
    shares = {each.name: each.metric.is_share for each in plan.computed}
    undefined = {f"{level}/{name}": share for level in _LEVELS for name, share in shares.items()}
    table = tabulate_metrics(contents, undefined)
    if table is None:
        return {}
    levels = {}
    for level in _LEVELS:
        prefix = f"{level}/"
        measures = {
            name.removeprefix(prefix): values
            for name, values in table.metrics.items()
            if name.startswith(prefix)
        }
        computed = {name: measures.pop(name) for name in shares if name in measures}
        if measures:
            levels[level] = ClientScores(table.clients, measures, computed)
    return levels
