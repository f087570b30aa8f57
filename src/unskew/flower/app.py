"""The app that every node of a Flower federation runs."""

import json
import os
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from logging import ERROR
from pathlib import Path
from typing import Literal

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from unskew.composition.method import Method
from unskew.composition.parts import Part
from unskew.data.targets import TaskName
from unskew.engine.cohort import ClientFailed
from unskew.engine.metrics import MetricSpec, metrics_of_user
from unskew.engine.pure_hooks import ImpureHook
from unskew.flower.node import Node, refusal
from unskew.flower.requests import Greeting, PrepareRequest, Request, read_arrays
from unskew.flower.site import Data, DataFn, Site
from unskew.flower.wire import (
    ACTION,
    NODE_INFO,
    PREPARE,
    REPLY,
    Refusal,
    log,
)
from unskew.methods import make_method

Handler = Callable[[Node, Message, Context], RecordDict]

_STATE_CONFIG, _STATE_VARIABLE = "state-dir", "UNSKEW_STATE"

_INSTALLED = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_NOT_OF_THE_USER = (str(Path(__file__).parents[1]), *_INSTALLED, "<")
"""How the files of unskew, of other packages and of Python itself begin."""


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
    variable ``UNSKEW_STATE``, or ``~/.unskew/flower``. With None, no files are written.

    With ``noise="secret"``, the noise of private stages does not depend on the run's seed, which
    the server knows. ``"seeded"`` draws the same noise as a simulation, to compare with one.

    ``task`` is that of :meth:`unskew.Federation.from_arrays`, for samples given as arrays
    and for raw tables that do not set theirs.
    ``metrics`` are the functions of the strategy's metrics; those with a name in unskew need not be
    given, but may be.
    """
    chosen = make_method(method)
    computed = metrics_of_user(metrics)
    app = ClientApp()

    def node(context: Context) -> Node:
        folder = _state_folder(context) if state == "auto" else state
        site = Site.of(data, context, name, task)
        path = None if folder is None else Path(folder)
        return Node(site, chosen, model, device, path, noise == "secret", computed)

    def handle(handler: Handler) -> Callable[[Message, Context], Message]:
        def reply(message: Message, context: Context) -> Message:
            try:
                content = handler(node(context), message, context)
            except Exception as error:
                content = refusal(_describe_without_data(error))
            return Message(content, reply_to=message)

        return reply

    app.query(ACTION)(handle(_describe_node))
    app.query(PREPARE.partition(".")[2])(handle(_prepare))
    app.train(ACTION)(handle(_train))
    app.evaluate(ACTION)(handle(_evaluate))
    return app


def _describe_node(node: Node, message: Message, context: Context) -> RecordDict:
    del context
    Greeting.of(message.content)
    return RecordDict({NODE_INFO: ConfigRecord({"json": json.dumps(node.site.info())})})


def _prepare(node: Node, message: Message, context: Context) -> RecordDict:
    request = PrepareRequest.of(message.content)
    reply = node.preprocessing(request.run, context).reply_to(request)
    return RecordDict({REPLY: ConfigRecord({"json": json.dumps(reply)})})


def _train(node: Node, message: Message, context: Context) -> RecordDict:
    request = Request.of(message.content)
    return node.train(request, read_arrays(message.content), context)


def _evaluate(node: Node, message: Message, context: Context) -> RecordDict:
    request = Request.of(message.content)
    return node.evaluate(request, read_arrays(message.content), context)


def _describe_without_data(error: Exception) -> str:
    """Describe an error without its text, which may contain data; log it in full on the node."""
    if isinstance(error, Refusal | ImpureHook):
        return str(error)
    log(ERROR, "unskew: this node failed", exc_info=error)
    hook = error.hook if isinstance(error, ClientFailed) else None
    cause = error.__cause__ if isinstance(error, ClientFailed) and error.__cause__ else error
    return f"it raised {type(cause).__name__}" + (f" in {hook}" if hook else "") + _place(cause)


def _place(error: BaseException) -> str:
    """Return the last line of the user's code that an error passed through, as file and number."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not each.filename.startswith(_NOT_OF_THE_USER)]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def _state_folder(context: Context) -> Path:
    configured = context.node_config.get(_STATE_CONFIG) or os.environ.get(_STATE_VARIABLE)
    return Path(str(configured)) if configured else Path.home() / ".unskew" / "flower"
