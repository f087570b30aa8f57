"""Every field that one node sends before the first round is hostile in turn, as JSON.

The fields are found in real replies: the greeting, and what nodes with tables say about their
columns. The run goes on with the honest nodes; of two that contradict each other, it may end.
"""

import json
import math
import re
import uuid

import numpy as np
import pytest
import torch

from marks import long_after
from toys import small_federation
from unskew.errors import UnskewError

grids = pytest.importorskip("grids")

from flwr.app import ConfigRecord  # noqa: E402

from unskew.data.preprocessing.declared import declared_columns  # noqa: E402
from unskew.data.preprocessing.spec import parse_prepare  # noqa: E402
from unskew.data.read_tables import RawTable  # noqa: E402
from unskew.flower import NodeTable  # noqa: E402
from unskew.flower.nodes import Nodes  # noqa: E402
from unskew.flower.preprocessing import PreprocessingExchange  # noqa: E402
from unskew.flower.registry import NodeRegistry  # noqa: E402
from unskew.flower.strategy import half_of  # noqa: E402

QUERY, PREPARE, TRAIN = "query.unskew", "query.unskew_prepare", "train.unskew"
RECORDS = {QUERY: "info", PREPARE: "reply"}
OPTIONS = {"rounds": 1, "lr": 0.1, "batch_size": 8, "evaluate_every": 0, "wait": 0.0}
LARGEST_GROWTH = 5
"""How many times as large as in the honest run models and features may become."""
MISSING = object()

HOSTILE = {
    "missing": lambda value: MISSING,
    "null": lambda value: None,
    "undefined": lambda value: math.nan,
    "infinite": lambda value: -math.inf,
    "huge": lambda value: 1e308,
    "largest integer": lambda value: 2**63,
    "beyond every float": lambda value: 10**400,
    "negative": lambda value: -1,
    "a million times": lambda value: value * 10**6 if is_number(value) else [value] * 1000,
    "a little more": lambda value: value + 1 if is_number(value) else value,
    "tiny": lambda value: 5e-324,
    "zero": lambda value: 0,
    "text": lambda value: "\x1b[31m\u202e\x00" * 3,
    "long text": lambda value: "x" * 20_000,
    "true": lambda value: True,
    "list": lambda value: [value, [value]],
    "object": lambda value: {"\x1b]0;": value},
    "deep": lambda value: json.loads("[" * 500 + "]" * 500),
}


def is_number(value):
    return isinstance(value, int | float)


def paths_of(value, path=()):
    """Return the paths of a JSON value and of all its parts; of a list, of the two ends only."""
    found = [path]
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = {0: value[0], len(value) - 1: value[-1]}.items() if value else ()
    else:
        return found
    return [*found, *(each for key, part in parts for each in paths_of(part, (*path, key)))]


def renamed(value, path):
    """Return a JSON value in which the last key of a path has control characters."""
    owner = dict(value)
    if len(path) > 1:
        return {**owner, path[0]: renamed(owner[path[0]], path[1:])}
    return {f"\x1b[2J{name}" if name == path[0] else name: part for name, part in owner.items()}


def changed(value, path, change):
    """Return a JSON value whose part at a path is changed."""
    if not path:
        return change(value)
    whole = dict(value) if isinstance(value, dict) else list(value)
    part = changed(whole[path[0]], path[1:], change)
    if part is MISSING:
        del whole[path[0]]
    else:
        whole[path[0]] = part
    return whole


def lies_about(message):
    """Return all hostile forms of a JSON message, by what they change."""
    lies = {}
    for path in paths_of(message):
        for form, change in HOSTILE.items():
            lie = changed(message, path, change)
            if path and lie != message:
                lies["/".join(map(str, path)), form] = json.dumps(lie)
        if path and isinstance(path[-1], str) and not any(isinstance(k, int) for k in path):
            lies["/".join(path), "name"] = json.dumps(renamed(message, path))
    whole = {"empty": "", "null": "null", "list": "[]", "cut": json.dumps(message)[:-1],
             "deep": "[" * 100_000, "escape": "\x1b[31m"}  # fmt: skip
    return lies | {("", form): text for form, text in whole.items()}


def saying(node, kind, place, text):
    """Make a node send a text in place of its reply number ``place`` of a kind."""
    count = iter(range(100))

    def spoil(sender, message, reply):
        if (sender, message) == (node, kind) and next(count) == place:
            reply.content[RECORDS[kind]] = ConfigRecord({"json": text})
        return reply

    return spoil


def said(grid, node, kind):
    """Return the JSON messages that a node has sent."""
    record = RECORDS[kind]
    return [
        json.loads(reply.content.config_records[record]["json"])
        for sender, _, reply in grid.of_kind(kind)
        if sender == node and record in reply.content.config_records
    ]


def rows_of(site, samples=24):
    random = np.random.default_rng(site)
    return [
        {
            "age": f"{random.normal(55 + 5 * site, 12):.1f}" if row else "",
            "ward": ("eyes", "heart", "surgery")[row % 3],
            "outcome": ("died", "left")[row % 2],
        }
        for row in range(samples)
    ]


def texts_of(site):
    words = ("fever", "cough", "pain")[site % 3]
    return [
        {"note": f"the {words} is {how}", "outcome": how} for how in ("gone", "back") * 8
    ]  # fmt: skip


RANGES = "age=0..120,ward=eyes|heart|surgery"
TABLES = {
    "standard": ("federated", None, rows_of),
    "robust": ("federated:scale=robust,points=6", None, rows_of),
    "private": ("federated:epsilon=50", RANGES, rows_of),
    "texts": ("federated:words=20,length=6", None, texts_of),
}


class Tables:
    """Nodes with a table each, which can be prepared again and again."""

    def __init__(self, table, nodes):
        spec, columns, rows = TABLES[table]
        loaded = {str(k): rows(k) for k in range(nodes)}
        app = grids.client_app(
            None,
            lambda context: NodeTable(
                loaded[str(context.node_config["partition-id"])], label="outcome", prepare=spec
            ),
            state=None,
            noise="seeded",
        )
        self.prepare, self.columns = parse_prepare(spec), declared_columns(columns)
        self.grid = grids.grid_of(app, nodes)
        self.registry = NodeRegistry(self.grid)
        self.registry.wait_for_nodes(nodes, nodes, 0.0)
        names = [name for name in rows(0)[0] if name != "outcome"]
        self.cells = RawTable.of(loaded["0"], "rows").cells(names)

    def fit(self, spoil=None):
        """Return the honest first node's features, and the nodes that are left."""
        self.grid.spoil = spoil or (lambda name, kind, reply: reply)
        self.grid.log.clear()
        self.registry.run = uuid.uuid4().hex
        quorum = half_of(len(self.registry.names))
        exchange = PreprocessingExchange(
            Nodes(self.grid, self.registry, quorum, 0.0, 60.0), self.prepare, 0
        )
        fitted = exchange.fit(self.columns)
        exchange.apply(fitted)
        return fitted.preprocessing.transform.apply(self.cells, "rows"), set(exchange.clients)


def run_of_samples(nodes, spoil=None):
    federation = small_federation((20, 13, 9, 14, 8, 11, 17)[:nodes], unit=True)
    return grids.run_on_grid(federation, "fedavg", spoil=spoil, **OPTIONS)


def size_of(run):
    return float(torch.linalg.vector_norm(grids.vector_of(run.model).double()))


def trained(grid):
    return {name for name, *_ in grid.of_kind(TRAIN)}


def ended_or(start, *arguments):
    """Return what a start returns, or the text of the error that ends it."""
    try:
        return start(*arguments), None
    except UnskewError as error:
        return None, str(error)


GREETINGS = [("last", 3, 8), ("last", 2, 1), ("first", 2, 1), ("last", 3, 1), ("first", 7, 3)]
"""Whether the hostile node is the first or the last of how many, and every which lie it tells."""


@pytest.mark.parametrize(("place", "nodes", "step"), long_after(1, GREETINGS))
@pytest.mark.filterwarnings("ignore")
def test_a_hostile_greeting_does_not_stop_the_others(place, nodes, step):
    bad = "0" if place == "first" else str(nodes - 1)
    honest = {str(k) for k in range(nodes)} - {bad}
    good = run_of_samples(nodes)
    (message,) = said(good.grid, bad, QUERY)
    for about, text in list(lies_about(message).items())[::step]:
        done, error = ended_or(run_of_samples, nodes, saying(bad, QUERY, 0, text))
        if error is not None:  # of two nodes, nothing tells whose samples have the wrong format
            assert nodes == 2, (about, error)
            assert "give all of them the same preprocessing" in error, (about, error)
            continue
        assert honest <= trained(done.grid), about
        assert not any(set(row.get("rejected", {})) & honest for row in done.run.metrics), about
        assert size_of(done.run) < LARGEST_GROWTH * size_of(good.run), about


PREPARED = [("private", 3, 4)]
PREPARED += [(table, nodes, 2 if nodes < 7 else 7) for table in TABLES for nodes in (2, 3, 7)]
PREPARED += [("robust", -2, 3), ("texts", -3, 3)]  # the first node is the hostile one


@pytest.mark.parametrize(("table", "nodes", "step"), long_after(1, PREPARED))
@pytest.mark.filterwarnings("ignore")
def test_a_hostile_table_does_not_stop_the_others(table, nodes, step):
    nodes, bad = abs(nodes), nodes - 1 if nodes > 0 else 0
    tables = Tables(table, nodes)
    good, everyone = tables.fit()
    assert everyone == set(range(nodes))
    largest = np.abs(good).max()
    for place, message in enumerate(said(tables.grid, str(bad), PREPARE)):
        for about, text in list(lies_about(message).items())[::step]:
            found, error = ended_or(tables.fit, saying(str(bad), PREPARE, place, text))
            if error is not None:  # of two nodes, nothing tells which one describes it wrongly
                assert nodes == 2, (about, error)
                assert re.match("prepare: (0 nodes can be prepared|no columns are)", error), about
                assert error.isprintable(), (about, error)
                continue
            features, left = found
            assert left >= everyone - {bad}, about
            assert np.isfinite(features).all(), about
            if nodes > 2:
                assert np.abs(features).max() < LARGEST_GROWTH * largest, about


def test_of_two_nodes_with_different_columns_none_is_left_out():
    tables = Tables("standard", 2)
    tables.fit()
    message = said(tables.grid, "0", PREPARE)[0]
    spoil = saying("0", PREPARE, 0, json.dumps(renamed(message, ("age",))))
    with pytest.raises(UnskewError, match=r"compared with 0, 1: it lacks .*; it also has age"):
        tables.fit(spoil)
