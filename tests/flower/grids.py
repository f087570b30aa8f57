"""A Flower grid in this process, whose nodes reply at once and can be made to fail."""

import os

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

import logging

from flwr.app import Array, Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from toys import small_federation
from unskew.flower import Strategy, client_app
from unskew.models.layout import Layout, flatten

# Flower creates messages only inside a run; this makes it believe that there is one.
TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
logging.getLogger("flwr").setLevel(logging.CRITICAL)

__all__ = ["Array", "Layout", "Strategy", "client_app"]

MODEL = "mlp:hidden=8"


class InProcessGrid(Grid):
    """Runs one app for every node; ``spoil`` may change a reply, or drop it by returning None."""

    def __init__(self, app, configs, spoil=None):
        self.app, self.spoil = app, spoil or (lambda name, kind, reply: reply)
        # Unordered ids, like Flower's.
        ids = [(37 * i) % 1009 + 2 for i in range(len(configs))]
        self.contexts = {n: _context(n, config) for n, config in zip(ids, configs, strict=True)}
        self.offline = set()
        self.log = []
        self._replies = {}

    def name_of(self, node):
        config = self.contexts[node].node_config
        return str(config.get("site", config.get("partition-id")))

    def add(self, config):
        """Connect one more node."""
        node = max(self.contexts) + 1
        self.contexts[node] = _context(node, config)

    def forget(self, name):
        """Clear a node's memory, as a restart does."""
        for node, context in self.contexts.items():
            if self.name_of(node) == name:
                self.contexts[node] = _context(node, context.node_config)

    def set_run(self, run):
        self._run = run

    @property
    def run(self):
        return self._run

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_node_ids(self):
        return [node for node in self.contexts if self.name_of(node) not in self.offline]

    def push_messages(self, messages):
        message_ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = message_id = message.object_id
            message.metadata.__dict__["_src_node_id"] = 1
            message_ids.append(message_id)
            self._deliver(message_id, message)
        return message_ids

    def _deliver(self, message_id, message):
        node, kind = message.metadata.dst_node_id, message.metadata.message_type
        try:
            reply = self.app(message, self.contexts[node])
        except Exception as error:
            reply = Message(Error(code=2, reason=str(error)), reply_to=message)
        self.log.append((self.name_of(node), kind, message, reply))
        reply = self.spoil(self.name_of(node), kind, reply)
        if reply is not None:
            self._replies[message_id] = reply

    def pull_messages(self, message_ids):
        return [self._replies.pop(each) for each in message_ids if each in self._replies]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))[::-1]

    def of_kind(self, kind):
        """The exchanges of one message type, as (node, message, reply)."""
        return [(name, sent, reply) for name, type_, sent, reply in self.log if type_ == kind]


def _context(node, config):
    return Context(
        run_id=1, node_id=node, node_config=dict(config), state=RecordDict(), run_config={}
    )


def grid_of(app, nodes, spoil=None):
    """A grid with one node per partition."""
    return InProcessGrid(app, [{"partition-id": i} for i in range(nodes)], spoil)


def seven_clients():
    """Seven small clients, enough for every rule."""
    return small_federation((20, 13, 9, 14, 8, 11, 17), unit=True)


def run_on_grid(federation, method, *, model=MODEL, grid=None, spoil=None, app=None, **options):
    """Execute a run on a grid; return the strategy, which has the ``run``."""
    settings = dict(options)
    app_options = {name: settings.pop(name) for name in ("noise",) if name in settings}
    state = settings.pop("state", None)
    app = app or client_app(model, federation, method, state=state, **app_options)
    grid = grid or grid_of(app, len(federation), spoil)
    common = federation.common.client(0) if federation.common.samples else None
    strategy = Strategy(
        method,
        **{"model": model, "common": common, "nodes": len(federation), "wait": 0.0} | settings,
    )
    strategy.grid = grid
    strategy.result = strategy.start(grid)
    return strategy


def vector_of(module):
    return flatten(module, Layout.of(module))
