"""The app that every node of a Flower federation runs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from logging import ERROR
from pathlib import Path
from typing import Any, Literal, TypeVar

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from unskew.composition.hook_calls import HookFailed
from unskew.composition.method import Method
from unskew.composition.parts import Part
from unskew.data.targets import TaskName
from unskew.engine.cohort import ClientFailed
from unskew.engine.metrics import MetricSpec, metrics_of_user
from unskew.flower.leaving import check_method
from unskew.flower.node import Node, refusal
from unskew.flower.policy import Limits, Policy
from unskew.flower.requests import (
    Greeting,
    Origin,
    PrepareRequest,
    Request,
    ServerMessage,
    forms_for_the_method,
    read_arrays,
)
from unskew.flower.run_work import RunWork, Work
from unskew.flower.sent_log import Outgoing, SentLog
from unskew.flower.site import Data, DataFn, Site, name_of
from unskew.flower.site_rules import SiteRules
from unskew.flower.wire import (
    ACTION,
    NODE_INFO,
    PREPARE,
    REFUSAL,
    REPLY,
    Refusal,
    log,
)
from unskew.methods import make_method
from unskew.privacy import PrivacyLimit
from unskew.utils.code_places import in_brackets, place_of

RequestT = TypeVar("RequestT", bound=ServerMessage)
Reader = Callable[[Node, Message], RequestT]
Handler = Callable[[Node, RequestT, Message, Context], Outgoing]


def client_app(
    model: str | nn.Module | None,
    data: Data | DataFn,
    method: str | Part | Method = "fedavg",
    *,
    name: str | None = None,
    device: str = "auto",
    state: str | Path | Literal["auto"] | None = "auto",
    noise: Literal["secret", "seeded"] = "secret",
    task: TaskName | None = None,
    metrics: Sequence[MetricSpec] = (),
    policy: Policy | Mapping[str, Any] | str | Path | None = None,
    budget: PrivacyLimit | str | float | None = None,
) -> ClientApp:
    """Return a node's app, which runs the preparatory stages, training and evaluation of a method.

    ``data`` is the node's samples as (x, y) or (x, y, test x, test y), or a federation of which
    the node is the client given by its ``partition-id``, or its raw table, or a function of
    Flower's context that returns one of these. ``model`` and ``method`` must be those of the
    server's strategy.

    The node is called ``name``; the default is ``name``, ``site`` or ``partition-id`` of its
    config.

    The node also writes its state between rounds to a file in the folder ``state``, so that a
    restart loses nothing. The default is ``state-dir`` of the node's config, the environment
    variable ``UNSKEW_STATE``, or ``~/.unskew/flower``. With None, no files are written, and private
    stages with secret noise are refused: they need a ledger.

    With ``noise="secret"``, noise and batches of private stages do not depend on the run's seed,
    which the server knows. ``"seeded"`` draws those of a simulation, to compare with one.

    ``budget`` is the most that all private releases about the node's samples may cost, in all runs
    together, as epsilon/delta: ``"3/1e-5"``. The node's config may limit it further with
    ``privacy-budget``. Without either, the limit is what the first run's method states.

    ``task`` is that of :meth:`unskew.Federation.from_arrays`, for samples given as arrays
    and for raw tables that do not set theirs.
    ``metrics`` are the functions of the strategy's metrics; those with a name in unskew need not be
    given, but may be.

    ``policy`` is what the site allows, as a TOML file or its values (``docs/deploy.md``). The
    ``policy`` of the node's config narrows it further.
    """
    rules = SiteRules.of(policy, budget, state)
    chosen, computed, is_secret = make_method(method), metrics_of_user(metrics), noise == "secret"

    def node(context: Context) -> Node:
        site, folder = Site.of(data, context, name, task), rules.state_folder(context)
        allowed, limits = rules.policy_of(context), rules.budgets(context)
        return Node(site, chosen, model, device, folder, is_secret, computed, allowed, limits)

    return _Replies(node, rules, name, chosen).app()


@dataclass(frozen=True, eq=False)
class _Replies:
    """What a node replies: an answer or a refusal, logged before it leaves."""

    node: Callable[[Context], Node]
    rules: SiteRules
    name: str | None
    method: Method

    def app(self) -> ClientApp:
        """Return the app that replies to each kind of message."""
        app = ClientApp()
        app.query(ACTION)(self._handle(_read_greeting, _describe_node))
        app.query(PREPARE.partition(".")[2])(self._handle(_read_preparation, _prepare))
        app.train(ACTION)(self._handle(_read_request, _train))
        app.evaluate(ACTION)(self._handle(_read_request, _evaluate))
        return app

    def _handle(
        self, read: Reader[RequestT], answer: Handler[RequestT]
    ) -> Callable[[Message, Context], Message]:
        def reply(message: Message, context: Context) -> Message:
            folder, counted = self.rules.state_folder(context), False
            owner = self.name or name_of(context)
            sent = SentLog(folder, owner)
            try:
                ready = self.node(context)
                request = read(ready, message)
                ready.work(request.run, context).add(Work(messages=1))
                counted = True
                outgoing = answer(ready, request, message, context)
                sent.add(outgoing)
            except Exception as error:
                outgoing = _refused(_describe_without_data(error, message), message, self.method)
                try:
                    if not counted:
                        RunWork(folder, context, owner, "", Limits()).add(Work(messages=1))
                    sent.add(outgoing)
                except Refusal as unlogged:
                    outgoing = _refused(str(unlogged), message, self.method)
            return Message(outgoing.content, reply_to=message)

        return reply


def _read_greeting(node: Node, message: Message) -> Greeting:
    del node
    return Greeting.of(message.content)


def _describe_node(node: Node, request: Greeting, message: Message, context: Context) -> Outgoing:
    del message, context
    info = node.site.info()
    check_method(node.policy, node.method, {"statistics"} if "target" in info else {"scalars"})
    content = RecordDict({NODE_INFO: ConfigRecord({"json": json.dumps(info)})})
    return Outgoing(content, "info", request.run)


def _read_preparation(node: Node, message: Message) -> PrepareRequest:
    if node.site.raw is None:
        raise Refusal("it has no raw table to prepare")
    return PrepareRequest.of(message.content, node.site.raw.largest_request)


def _prepare(node: Node, request: PrepareRequest, message: Message, context: Context) -> Outgoing:
    del message
    reply, epsilon = node.preprocessing(request.run, context).reply_to(request)
    content = RecordDict({REPLY: ConfigRecord({"json": json.dumps(reply)})})
    return Outgoing(content, request.step, request.run, epsilon=epsilon)


def _read_request(node: Node, message: Message) -> Request:
    del node
    return Request.of(message.content)


def _train(node: Node, request: Request, message: Message, context: Context) -> Outgoing:
    tensors = read_arrays(message.content, node.policy.limits.megabytes)
    content, epsilon = node.train(request, tensors, context)
    return _of_round("train", content, node, request, epsilon)


def _evaluate(node: Node, request: Request, message: Message, context: Context) -> Outgoing:
    tensors = read_arrays(message.content, node.policy.limits.megabytes)
    return _of_round("evaluate", node.evaluate(request, tensors, context), node, request)


def _of_round(
    kind: str, content: RecordDict, node: Node, request: Request, epsilon: float | None = None
) -> Outgoing:
    stage = node.method.stages()[request.stage_index].name
    return Outgoing(content, kind, request.run, stage, request.round, epsilon)


def _refused(reason: str, message: Message, method: Method) -> Outgoing:
    origin, stages = Origin.of(message.content), method.stages()
    index = len(stages) if origin.stage_index is None else origin.stage_index
    stage = stages[index].name if index < len(stages) else None
    return Outgoing(refusal(reason), REFUSAL, origin.run or "", stage, origin.round)


def _describe_without_data(error: Exception, message: Message) -> str:
    """Describe an error without its text, which may contain data; log it in full on the node.

    The log also has the form of tensors that only the method knows: a server can make its code
    fail with them.
    """
    if isinstance(error, Refusal):
        return str(error)
    forms = forms_for_the_method(message.content)
    given = f", given {forms} by the server" if forms else ""
    log(ERROR, "unskew: this node failed%s", given, exc_info=error)
    hook = error.hook if isinstance(error, ClientFailed) else None
    cause = error.__cause__ if isinstance(error, ClientFailed) and error.__cause__ else error
    if isinstance(cause, HookFailed):
        return f"it {cause.without_values}"
    place = in_brackets(place_of(cause, names_folder=False))
    return f"it raised {type(cause).__name__}" + (f" in {hook}" if hook else "") + place
