"""The app that every node of a Flower federation runs."""

import json
import os
from collections.abc import Callable
from logging import ERROR
from pathlib import Path
from typing import Literal

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from unskew.engine.cohort import ClientFailed
from unskew.flower.node import Node, refusal
from unskew.flower.site import Data, DataOf, Site
from unskew.flower.wire import ACTION, ARRAYS, ORDER, Order, Refusal, log
from unskew.methods import make_method
from unskew.methods.common.base import Method

Handler = Callable[[Node, Message, Context], RecordDict]

_STATE_CONFIG, _STATE_VARIABLE = "state-dir", "UNSKEW_STATE"


def client_app(
    model: str | nn.Module | None,
    data: Data | DataOf,
    method: str | Method = "fedavg",
    *,
    name: str | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] = "cpu",
    state: str | Path | Literal["auto"] | None = "auto",
    noise: Literal["secret", "seeded"] = "secret",
) -> ClientApp:
    """Return the app of a node, for every method: its preparatory stages, training, evaluation.

    ``data`` are the node's own samples, (x, y) or (x, y, test x, test y), or a federation of which
    the node is the client that its ``partition-id`` says, or a function of Flower's context that
    returns either. ``model`` and ``method`` are those of the server's strategy.

    A node goes by ``name``; without it, by ``name``, ``site`` or ``partition-id`` of its config.
    What it keeps between rounds is in a file below ``state`` too, so that a restart loses nothing:
    without it the folder that its config calls ``state-dir``, that of the environment's
    ``UNSKEW_STATE``, or ``~/.unskew/flower``. With None there are no files.

    The noise of private stages is drawn in ``secret``, for the server knows the run's seed;
    ``seeded`` draws it as a simulation does, to compare with one.
    """
    chosen = make_method(method)
    app = ClientApp()

    def node(context: Context) -> Node:
        folder = _state_folder(context) if state == "auto" else state
        site = Site.of(data, context, name)
        path = None if folder is None else Path(folder)
        return Node(site, chosen, model, device, path, secret_noise=noise == "secret")

    def handle(handler: Handler) -> Callable[[Message, Context], Message]:
        def answer(message: Message, context: Context) -> Message:
            try:
                content = handler(node(context), message, context)
            except Exception as error:
                content = refusal(_without_data(error))
            return Message(content, reply_to=message)

        return answer

    app.query(ACTION)(handle(_hello))
    app.train(ACTION)(handle(_train))
    app.evaluate(ACTION)(handle(_evaluate))
    return app


def _hello(node: Node, message: Message, context: Context) -> RecordDict:
    del message, context
    return RecordDict({ORDER: ConfigRecord({"json": json.dumps(node.site.facts())})})


def _train(node: Node, message: Message, context: Context) -> RecordDict:
    order = Order.of(message.content.config_records[ORDER])
    return node.train(order, message.content.array_records[ARRAYS], context)


def _evaluate(node: Node, message: Message, context: Context) -> RecordDict:
    order = Order.of(message.content.config_records[ORDER])
    return node.evaluate(order, message.content.array_records[ARRAYS], context)


def _without_data(error: Exception) -> str:
    """Say what went wrong in words that hold nothing of the node's samples.

    The whole story goes to the node's own log.
    """
    if isinstance(error, Refusal):
        return str(error)
    log(ERROR, "unskew: this node failed", exc_info=error)
    hook = error.hook if isinstance(error, ClientFailed) else None
    cause = error.__cause__ if isinstance(error, ClientFailed) and error.__cause__ else error
    return f"it raised {type(cause).__name__}" + (f" in {hook}" if hook else "")


def _state_folder(context: Context) -> Path:
    told = context.node_config.get(_STATE_CONFIG) or os.environ.get(_STATE_VARIABLE)
    return Path(str(told)) if told else Path.home() / ".unskew" / "flower"
