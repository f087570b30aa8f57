"""Every field of every message, with hostile values: a node refuses them, and nothing else happens.

The messages are those of honest runs, so a new field of a message or a new method is swept too.
"""

import itertools
import logging
import resource

import pytest

from every_method import ON_NODES, QUICK

grids = pytest.importorskip("grids")

from hostile import (  # noqa: E402
    LIMITS,
    ask,
    hostile_arrays,
    hostile_requests,
    plain_request,
    refusal_of,
)
from node_tables import COLUMNS, run_on_nodes  # noqa: E402

from unskew.flower.ledger import read_ledger  # noqa: E402
from unskew.flower.node_files import NodeFiles  # noqa: E402
from unskew.flower.requests import forms_for_the_method  # noqa: E402

SECONDS = 2.0
"""How long a node may take for a message, here with at most 50 steps of a small network."""
MEGABYTES = 1000
"""How much this process may grow: messages of 80 MB, which the test itself holds several times."""
SPECS = ON_NODES | {
    "bulyan": "bulyan:f=0",
    "fedcluster": "fedcluster:groups=2",
}
PRIVATE = f"{QUICK['feddisk']},privacy=2/1e-3"
OPTIONS = {"rounds": 2, "lr": 0.1, "batch_size": 8}
TABLES = {
    "table": {},
    "private table": {"prepare": "federated:epsilon=2", "columns": COLUMNS},
    "hashed table": {"prepare": "federated:categories=hashed,buckets=4,scale=robust"},
}


class Guard:
    """The files outside a node's state folder, and foreign ones in it, which nobody may change."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.state = folder, folder / "inside" / "state"
        self.state.mkdir(parents=True)
        for name in ("victim.safetensors", "inside/victim", "inside/state/other.safetensors"):
            (folder / name).write_text("kept")
        monkeypatch.chdir(folder / "inside")
        monkeypatch.setenv("HOME", str(folder))
        self.before = self.outside()

    def outside(self):
        """Return the content of all files that are not the node's own."""
        own = {path for path in self.state.rglob("*") if path.name != "other.safetensors"}
        return {
            str(path): path.read_bytes() if path.is_file() else None
            for path in self.folder.rglob("*")
            if path not in own
        }

    def forget_work(self):
        """Remove the counts of work: every hostile message finds all that a run may ask for."""
        for count in self.state.rglob("work.json"):
            count.unlink()


@pytest.fixture
def guard(tmp_path, monkeypatch):
    return Guard(tmp_path, monkeypatch)


@pytest.fixture
def errors():
    """Collect the tracebacks that nodes log."""
    found = []

    class Collector(logging.Handler):
        def emit(self, record):
            if record.exc_info:
                found.append(repr(record.exc_info[1]))

    logger, level, handler = logging.getLogger("flwr"), logging.getLogger("flwr").level, Collector()
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(level)


def messages_of(grid, name):
    """Return the first and the last message of each kind, step and stage that a node got."""
    found = {}
    for node, kind, message, _ in grid.log:
        if node == name:
            plain = plain_request(message)
            key = kind, plain.get("step"), plain.get("stage_index")
            found[key] = [*found.get(key, [])[:1], message]
    return list(itertools.chain.from_iterable(found.values()))


def check(grid, name, message, what, errors, honest=None):
    """Send a node a message; assert that it answers or refuses at once, and raises nothing.

    ``honest`` is the message that was changed, if it was.
    """
    reply, seconds = ask(grid, name, message)
    reason, case = refusal_of(reply), (message.metadata.message_type, what)
    assert seconds < SECONDS, (case, seconds, reason)
    assert reason is None or len(reason) <= 301, case
    if errors and forms_for_the_method((honest or message).content):  # the method knows what fits
        assert reason.startswith("it "), (case, reason)
        assert len(errors) == 1, (case, errors)
        errors.clear()
    assert not errors, (case, errors)


def sweep(grid, name, guard, errors, every=1):
    """Send a node every hostile message, or each nth of them; return their number."""
    used, count = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    messages = messages_of(grid, name)
    for message in messages:
        hostile = itertools.chain(hostile_requests(message), hostile_arrays(message))
        for what, changed in itertools.islice(hostile, count % every, None, every):
            guard.forget_work()
            check(grid, name, changed(), what, errors, message)
            count += 1
    for message in (*messages[::-1], *messages, *messages):
        guard.forget_work()
        check(grid, name, message, "order and repetition", errors)
    assert guard.outside() == guard.before
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used) / 1024
    assert grown < MEGABYTES, grown
    return count


def assert_within_budget(guard):
    """Assert that all private releases of a node cost no more than its first run."""
    ledgers = [read_ledger(NodeFiles(each.parent)) for each in guard.state.rglob("ledger.json")]
    assert ledgers
    for ledger in ledgers:
        for limit in ledger.limits:
            assert 0 < ledger.spent().epsilon(limit.delta) <= limit.epsilon * (1 + 1e-9)


def run_of(method, guard):
    federation = grids.seven_clients()
    app = grids.client_app(grids.MODEL, federation, method, state=guard.state, policy=LIMITS)
    return grids.run_on_grid(federation, method, app=app, **OPTIONS).grid


def run_on_tables(table, guard):
    options = {"state": guard.state, "noise": "secret", "app": {"policy": LIMITS}}
    grid = run_on_nodes(guard.folder / "tables", **TABLES[table], **options).grid
    guard.before = guard.outside()
    return grid


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedper"])
def test_some_hostile_messages_have_no_effect(method, guard, errors):
    assert sweep(run_of(SPECS[method], guard), "3", guard, errors, every=29) > 100


@pytest.mark.parametrize("table", TABLES)
def test_some_hostile_messages_about_tables_have_no_effect(table, guard, errors):
    assert sweep(run_on_tables(table, guard), "north", guard, errors, every=29) > 100
    if "epsilon" in TABLES[table].get("prepare", ""):
        assert_within_budget(guard)


def test_some_hostile_messages_of_a_private_stage_spend_no_more_than_its_budget(guard, errors):
    pytest.importorskip("opacus")
    assert sweep(run_of(PRIVATE, guard), "3", guard, errors, every=29) > 100
    assert_within_budget(guard)


class Replay:
    """Sends one node all its earlier messages again, once, when it has got two of a round."""

    def __init__(self, monkeypatch, name, errors):
        self.name, self.errors, self.done = name, errors, False
        self.push = grids.InProcessGrid.push_messages
        monkeypatch.setattr(grids.InProcessGrid, "push_messages", self.pushing())

    def pushing(self):
        def push(grid, messages):
            ids = self.push(grid, messages)
            if not self.done and len(self.of_training(grid)) == 2:
                self.done = True
                own = [message for name, _, message, _ in grid.log if name == self.name]
                for message in (*own[::-1], *own[::-1], *own, *own):
                    check(grid, self.name, message, "order and repetition", self.errors)
            return ids

        return push

    def of_training(self, grid):
        return [reply for name, _, reply in grid.of_kind("train.unskew") if name == self.name]


def assert_same_or_refused(replay, replayed, honest):
    """Assert that a run goes on with the same bits, or that the node says what it lacks."""
    assert replay.done
    reasons = [refusal_of(reply) for reply in replay.of_training(replayed.grid)]
    vector, expected = (grids.vector_of(each.run.model) for each in (replayed, honest))
    assert vector.isfinite().all()
    assert reasons[:2] == [None, None]
    if not any(reasons):
        assert vector.equal(expected)
    assert all(why is None or "it has lost its state of stage" in why for why in reasons)


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "ditto", "fedper"])
def test_earlier_messages_in_any_order_change_nothing(method, guard, errors, monkeypatch):
    federation, options = grids.seven_clients(), {**OPTIONS, "rounds": 5, "evaluate_every": 1}
    honest = grids.run_on_grid(federation, method, **options)
    replay = Replay(monkeypatch, "3", errors)
    replayed = grids.run_on_grid(federation, method, state=guard.state, **options)
    assert_same_or_refused(replay, replayed, honest)
    assert guard.outside() == guard.before


@pytest.mark.parametrize("table", ["table", "hashed table"])
def test_earlier_messages_about_tables_change_nothing(table, guard, errors, monkeypatch):
    options = {**TABLES[table], "rounds": 4, "evaluate_every": 1}
    honest = run_on_nodes(guard.folder / "tables", **options)
    guard.before = guard.outside()
    replay = Replay(monkeypatch, "north", errors)
    replayed = run_on_nodes(guard.folder / "tables", state=guard.state, **options)
    assert_same_or_refused(replay, replayed, honest)
    assert guard.outside() == guard.before


@pytest.mark.long
@pytest.mark.parametrize("method", [*SPECS.values(), PRIVATE])
def test_hostile_messages_have_no_effect(method, guard, errors):
    pytest.importorskip("opacus")
    # All methods have the same fields besides their own tensors, so most get every tenth message.
    every = 1 if method in (SPECS["scaffold"], PRIVATE) else 10
    assert sweep(run_of(method, guard), "3", guard, errors, every) > 500 / every


@pytest.mark.long
@pytest.mark.parametrize("table", TABLES)
def test_hostile_messages_about_tables_have_no_effect(table, guard, errors):
    assert sweep(run_on_tables(table, guard), "north", guard, errors) > 500
