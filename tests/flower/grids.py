"""A Flower grid in this process: nodes answer at once, and can be made to fail."""

import contextlib
import os

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from unskew.flower import Strategy, client_app
from unskew.layout import Layout, flatten

# Messages can be made inside a run only; this is what tells Flower that there is one.
TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1


class InProcessGrid(Grid):
    """Runs one app for every node; ``spoil`` may change or drop what a node answers."""

    def __init__(self, app, configs, spoil=None, replies=reversed):
        self.app, self.spoil, self._order = app, spoil or (lambda node, kind, reply: reply), replies
        # Numbers that are in no order, as Flower's are not.
        self.contexts = {
            (7 * i) % 1009 + 2: _context((7 * i) % 1009 + 2, config)
            for i, config in enumerate(configs)
        }
        self.away = set()
        self.log = []
        self._box = {}

    def name_of(self, node):
        return str(self.contexts[node].node_config.get("partition-id", node))

    def restart(self, name):
        """Let a node lose its memory."""
        for node, context in self.contexts.items():
            if self.name_of(node) == str(name):
                self.contexts[node] = _context(node, context.node_config)

    def set_run(self, run):
        self._run = run

    @property
    def run(self):
        return self._run

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_node_ids(self):
        return [node for node in self.contexts if self.name_of(node) not in self.away]

    def push_messages(self, messages):
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = number = message.object_id
            message.metadata.__dict__["_src_node_id"] = 1
            self._answer(number, message)
            ids.append(number)
        return ids

    def _answer(self, number, message):
        node, kind = message.metadata.dst_node_id, message.metadata.message_type
        try:
            reply = self.app(message, self.contexts[node])
        except Exception as error:
            reply = Message(Error(code=2, reason=type(error).__name__), reply_to=message)
        self.log.append((self.name_of(node), kind, message, reply))
        reply = self.spoil(self.name_of(node), kind, reply)
        if reply is not None:
            self._box[number] = reply

    def pull_messages(self, message_ids):
        return [self._box.pop(number) for number in message_ids if number in self._box]

    def send_and_receive(self, messages, *, timeout=None):
        return list(self._order(self.pull_messages(self.push_messages(messages))))


def _context(node, config):
    return Context(
        run_id=1, node_id=node, node_config=dict(config), state=RecordDict(), run_config={}
    )


def grid_of(app, nodes, **options):
    """A grid of so many partitions."""
    configs = [{"partition-id": i, "num-partitions": nodes} for i in range(nodes)]
    return InProcessGrid(app, configs, **options)


def play(federation, method, *, model="mlp:hidden=8", state=None, grid=None, **settings):
    """Play a run on the grid; return the strategy, whose ``run`` says what happened."""
    app = client_app(model, federation, method, state=state)
    grid = grid or grid_of(app, len(federation))
    options = {"nodes": len(federation), "wait": 0.0, **settings}
    common = federation.common.client(0) if federation.common.samples else None
    strategy = Strategy(method, model=model, common=common, **options)
    strategy.start(grid)
    return strategy


def vector_of(run):
    return flatten(run.model, Layout.of(run.model))


@contextlib.contextmanager
def quiet():
    """Keep Flower's log out of the tests' output."""
    import logging

    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
