"""A node's part of a round: the engine's code for one client, between two messages."""

import secrets
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import torch
from flwr.app import (
    ConfigRecord,
    Context,
    MetricRecord,
    MetricRecordValues,
    RecordDict,
)
from torch import Tensor, nn

from unskew.composition.method import Method
from unskew.composition.values import Finished, Server, Stage, Tensors, Trained
from unskew.engine.client import ClientContext, Loop
from unskew.engine.cohort import ClientTask
from unskew.engine.evaluate import score
from unskew.engine.metrics import MetricPlan, plan_metrics, task_of
from unskew.engine.model_factory import make_module
from unskew.engine.personal import personal_models
from unskew.engine.private_steps import PrivateStage, check_private
from unskew.engine.pure_hooks import checking
from unskew.engine.runners import choose_device
from unskew.engine.stage import client_context, rounds_of
from unskew.engine.traffic import hidden_from_server, sent_down, sent_up
from unskew.errors import UnskewError
from unskew.flower.kept_model import KeptModel, keep_model
from unskew.flower.leaving import check_evaluation, check_stage
from unskew.flower.ledger import Ledger, Release
from unskew.flower.node_preprocessing import NodePreprocessing
from unskew.flower.policy import Policy
from unskew.flower.private_replies import hash_of_request, reply_from_bytes, reply_to_bytes
from unskew.flower.requests import Request
from unskew.flower.run_work import RunWork
from unskew.flower.site import Site
from unskew.flower.state_store import NodeStateStore
from unskew.flower.wire import (
    ARRAYS,
    EXTRA,
    MAX_REASON,
    METRICS,
    MODEL,
    REFUSAL,
    SAMPLES,
    SERVER_STATE,
    Refusal,
    named_tensors,
    to_arrays,
)
from unskew.privacy import PrivacyLimit
from unskew.runs.checkpoint import Position
from unskew.runs.states import ClientStates
from unskew.stats.formulas import PredictionMetric
from unskew.utils.printable import printable

_HIDDEN = "unskew.hidden"
"""In a node's state: initial values of what the server never sees, which are sent only once."""


@dataclass(frozen=True, eq=False)
class Node:
    """One client of a federation, on the machine that has its samples."""

    site: Site
    method: Method
    model: str | nn.Module | None
    device: str
    folder: Path | None
    """The folder for state files; None: states are not written to files."""
    secret_noise: bool
    """Whether private stages draw noise and batches secretly instead of from the run's seed."""
    metrics: tuple[PredictionMetric, ...] = ()
    """The user's metrics, which the server asks for by name."""
    policy: Policy = field(default_factory=Policy)
    """What the site allows."""
    limits: tuple[PrivacyLimit, ...] = ()
    """What all private releases about the node's samples may cost, in all runs together."""

    def train(
        self, request: Request, tensors: Tensors, context: Context
    ) -> tuple[RecordDict, float | None]:
        """Train one round; the client's state stays on the node.

        Return the reply, and the epsilon that it adds to the ledger if the stage is private.
        """
        client = self._prepared(request.run, context).context(request)
        stage = self.method.stages()[request.stage_index]
        if request.round >= rounds_of(stage, client.settings):
            raise Refusal(f"the stage ends before round {request.round + 1}")
        work = self.work(request.run, context)
        check_stage(self.policy, work, stage.name, client, request.client)
        state_store = self._state_store(request, context)
        state = dict(state_store.read(request.state))
        hidden = hidden_from_server(client.method, client.network.layout)
        model = _complete_model(_vector(tensors, MODEL), client, state)
        payload = {**tensors, MODEL: model}
        hidden_values = None if hidden is None else payload[MODEL][hidden]
        state.pop(_HIDDEN, None)

        def reply() -> RecordDict:
            result = Loop(client).train(request.round, [ClientTask(request.client, payload, state)])
            trained, finished = result.trained[0], result.finished[0]
            new_state = dict(finished.state)
            if hidden_values is not None:
                new_state[_HIDDEN] = hidden_values
            has_new_state = bool(new_state) and trained.finite and trained.steps > 0
            if has_new_state:
                state_store.write((request.stage_index, request.round), request.state, new_state)
            return reply_of_round(
                client, request.client, trained, finished, has_new_state=has_new_state
            )

        if client.private is None or not client.private.schedules or not self.secret_noise:
            return reply(), None
        asked = hash_of_request(request, tensors)
        release = Release.of_round(request.run, request.round, asked, client.private)
        content, epsilon = self.ledger.release(release, lambda: reply_to_bytes(reply()))
        return reply_from_bytes(content), epsilon

    @property
    def ledger(self) -> Ledger:
        """The ledger of what private releases about the node's samples have cost."""
        if self.folder is None:
            raise Refusal("without a state folder it keeps no ledger of privacy; set state")
        budgets = [stage.privacy for stage in self.method.stages() if stage.privacy is not None]
        of_statistics = None if self.site.raw is None else self.site.raw.prepare.budget
        stated = PrivacyLimit(
            epsilon=sum(each.epsilon for each in budgets) + (of_statistics or 0.0),
            delta=max((each.delta for each in budgets), default=0.0),
        )
        return Ledger(self.folder, self.site.fingerprint, self.site.name, self.limits, stated)

    def evaluate(self, request: Request, tensors: Tensors, context: Context) -> RecordDict:
        """Evaluate the global and the client's personal model on its test samples."""
        client = self._prepared(request.run, context).context(request)
        stage = self.method.stages()[request.stage_index].name
        work = self.work(request.run, context)
        check_evaluation(self.policy, work, stage, client, request.client)
        x, y = client.federation.test.client(request.client)
        plan = self._metric_plan(request, client)

        def measured(model: Tensor) -> dict[str, float]:
            scores = score(client.network, model, x, y, client.device, plan=plan)
            if scores.predictions is None:
                return scores.means()
            return {**scores.means(), **plan.client_values(y, scores.predictions)}

        model = _vector(tensors, "global", client.network.layout.size)
        own = self._own_model(client, request, tensors, context)
        if request.keep and self.folder is not None:
            self._keep(client, request, model if own is None else own, context)
        metrics: dict[str, MetricRecordValues] = {SAMPLES: len(y)}
        if len(y):
            local = measured(model)
            personal = local if own is None else measured(own)
            for level, values in (("local", local), ("personal", personal)):
                metrics |= {f"{level}/{name}": value for name, value in values.items()}
        return RecordDict({METRICS: MetricRecord(metrics)})

    def _own_model(
        self, client: ClientContext, request: Request, tensors: Tensors, context: Context
    ) -> Tensor | None:
        """Return the client's personal model; None if it uses the global one."""
        layout = client.network.layout
        if not client.method.has_personal_models(layout):
            return None
        stored = self._state_store(request, context).read(request.state)
        state = {name: tensor for name, tensor in stored.items() if name != _HIDDEN}
        server_state = {
            name.removeprefix(SERVER_STATE): tensor
            for name, tensor in tensors.items()
            if name.startswith(SERVER_STATE)
        }
        position = Position(
            stage=request.stage_index,
            round=request.round,
            server=Server(_vector(tensors, "vector", layout.size), server_state),
            states=ClientStates().updated({request.client: state} if state else {}),
        )
        (model,) = personal_models(client, position, [request.client])
        return model

    def _keep(
        self, client: ClientContext, request: Request, model: Tensor, context: Context
    ) -> None:
        """Write the model that the client uses to the state folder, for ``flower predict``."""
        assert self.folder is not None
        raw = self.site.raw
        prepared = None if raw is None else self.preprocessing(request.run, context).of_own_rows()
        tensors = named_tensors(model, client.network.layout)
        kept = KeptModel.of(self.site.name, request, client.federation, self.model, prepared)
        keep_model(self.folder, kept, tensors)

    def work(self, run: str, context: Context) -> RunWork:
        """Return the count of what the server has asked for in a run."""
        return RunWork(self.folder, context, self.site.name, run, self.policy.limits)

    def preprocessing(self, run: str, context: Context) -> NodePreprocessing:
        """Return the preprocessing of the node's raw table in a run."""
        raw = self.site.raw
        if raw is None:
            raise Refusal("it has no raw table to prepare")
        is_private = raw.prepare.budget is not None and self.secret_noise
        ledger = self.ledger if is_private else None
        return NodePreprocessing(
            raw, context, self.folder, run, self.site.name, self.secret_noise, self.policy, ledger
        )

    def _prepared(self, run: str, context: Context) -> "Node":
        """Return the node with features, if it has a raw table."""
        if self.site.raw is None:
            return self
        data = self.preprocessing(run, context).federation()
        return replace(self, site=Site(self.site.name, data))

    def context(self, request: Request) -> ClientContext:
        """Set up the requested stage; refuse if method or network differ from the server's."""
        stages = self.method.stages()
        if request.stage_index >= len(stages):
            raise Refusal(f"stage_index: must be below {len(stages)} (got {request.stage_index})")
        if request.method != self._method_name:
            raise Refusal(f"it runs {self._method_name}, but the server runs {request.method}")
        if (request.target is not None) != self.site.data.is_regression:
            kind = "numbers" if self.site.data.is_regression else "classes"
            raise Refusal(f"its targets are {kind}, unlike those of the run")
        if request.classes < self.site.data.classes:
            own = self.site.data.classes
            raise Refusal(f"classes: its samples have {own} (got {request.classes})")
        federation = self.site.as_client(
            request.client, request.clients, request.classes, request.target
        )
        settings = request.settings.model_copy(update={"runner": "loop", "device": self.device})
        device = choose_device(settings)
        try:
            _, module = make_module(federation, self.model, settings.seed, settings.loss)
        except UnskewError as error:
            raise Refusal(f"it cannot build its network: {error}") from None
        stage, last = stages[request.stage_index], request.stage_index == len(stages) - 1
        # In every round: a round without the nodes that refuse to train would hide the reason.
        stage = replace(stage, method=checking(stage.method))
        context = client_context(stage, module.to(device), federation, settings, device, last=last)
        if context.network.layout.fingerprint != request.layout:
            raise Refusal("its network differs from the server's in tensors, shapes or kinds")
        context.network.goal.check(federation)
        return context if stage.privacy is None else self._private(context, stage, request)

    def _metric_plan(self, request: Request, client: ClientContext) -> MetricPlan:
        """Find the metrics that the server asks for; files that it names are not opened."""
        classes = client.federation.classes
        task = task_of(client.network.goal, classes)
        requested = request.settings.metrics
        try:
            return plan_metrics(requested, None, task, classes, "", self.metrics, files=False)
        except UnskewError as error:
            raise Refusal(f"it cannot compute what the server asks for: {error}") from None

    def _state_store(self, request: Request, context: Context) -> NodeStateStore:
        return NodeStateStore(context, self.folder, request.run, self.site.name)

    def _private(self, context: ClientContext, stage: Stage, request: Request) -> ClientContext:
        """Make the steps private, with the noise that the server requests for all clients."""
        assert stage.privacy is not None
        try:
            check_private(context.method, context.network)
        except UnskewError as error:
            raise Refusal(str(error)) from None
        noise, rounds = request.noise or 0.0, rounds_of(stage, context.settings)
        secret = secrets.randbits(62) if self.secret_noise else None
        requested = PrivateStage.with_noise(
            stage.privacy, stage.name, context.federation.train.sizes, context.settings, noise
        )
        cost = requested.spent(rounds)["epsilon"] if requested.schedules else 0.0
        if not cost <= stage.privacy.epsilon:
            raise Refusal(
                f"its privacy budget needs more noise than {noise:.4g}, which the server requests: "
                f"{rounds} rounds would cost epsilon {cost:.4g} of {stage.privacy.epsilon:g}"
            )
        return replace(context, private=replace(requested, secret=secret))

    @cached_property
    def _method_name(self) -> str:
        return self.method.spec


def refusal(reason: str) -> RecordDict:
    """Return the content of a reply that refuses a request."""
    return RecordDict({REFUSAL: ConfigRecord({"reason": printable(reason[:MAX_REASON])})})


def _vector(tensors: Tensors, name: str, size: int | None = None) -> Tensor:
    """Return a model that was sent."""
    vector = tensors.get(name)
    if vector is None or vector.dtype != torch.float32 or vector.ndim != 1:
        raise Refusal(f"{name}: must be an array of float32 numbers with one axis")
    if size is not None and len(vector) != size:
        raise Refusal(f"{name}: must have {size} numbers (got {len(vector)})")
    return vector


def _complete_model(model: Tensor, context: ClientContext, state: Tensors) -> Tensor:
    """Return a received model with the coordinates that were not sent filled in."""
    method, layout = context.method, context.network.layout
    if len(model) == layout.size:
        return model
    mask = sent_down(method, layout) if "kept" in state else sent_up(method, layout)
    if mask is None or int(mask.sum()) != len(model):
        raise Refusal(f"it received a model of {len(model)} numbers, which its network cannot use")
    complete = torch.zeros(layout.size)
    hidden = hidden_from_server(method, layout)
    if hidden is not None and _HIDDEN not in state:
        raise Refusal("state: must name the state that completes the model that it received")
    if hidden is not None:
        complete[hidden] = state[_HIDDEN]
    complete[mask] = model
    return complete


def reply_of_round(
    context: ClientContext,
    client: int,
    trained: Trained,
    finished: Finished,
    *,
    has_new_state: bool,
) -> RecordDict:
    """Return everything that leaves the node: the uploaded coordinates, extras, and metrics."""
    mask = sent_up(context.method, context.network.layout)
    vector = trained.vector if mask is None else trained.vector[mask]
    extras = {f"{EXTRA}{name}": tensor for name, tensor in finished.extras.items()}
    metrics: dict[str, MetricRecordValues] = {
        SAMPLES: int(context.federation.train.sizes[client]),
        "steps": trained.steps,
        "loss": trained.loss,
        "finite": int(trained.finite),
        "new_state": int(has_new_state),
    }
    if trained.accuracy is not None:
        metrics["accuracy"] = trained.accuracy
    return RecordDict(
        {ARRAYS: to_arrays({MODEL: vector, **extras}), METRICS: MetricRecord(metrics)}
    )
