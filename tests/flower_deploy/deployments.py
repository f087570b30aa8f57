"""Real federations on loopback for the tests: apps, faulty nodes, and recorded runs."""

import json
from pathlib import Path

from unskew.flower.loopback.apps import read_app_config, with_changes
from unskew.flower.loopback.environment import wait_until
from unskew.flower.loopback.federation import Loopback
from unskew.flower.loopback.parity import Parity, check_parity
from unskew.flower.scaffolding import write_app
from unskew.runs.folder import read_lines

NODES = 3
RUN_TIMEOUT = 1200.0
"""Seconds to wait for a run of a few rounds; it takes half a minute on an idle machine."""
SECRET = "patient 4711"

FAULTY_CLIENT = f'''
"""Nodes that fail on request: ``faults`` is a list of round:node:fault."""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from task import METHOD, MODEL, federation

import unskew.flower


def fault(message, context):
    round_ = json.loads(message.content.config_records["request"]["json"])["round"]
    for text in context.run_config["faults"].split():
        when, node, kind = text.split(":")
        if int(when) == round_ and node == str(context.node_config["partition-id"]):
            return kind
    return None


def healthy_reply(message, context, broken=False):
    def samples(context):
        if broken:
            raise ValueError("{SECRET} is in a wrong column")
        return federation(context.run_config)

    return unskew.flower.client_app(MODEL, samples, METHOD)(message, context)


CORRUPTIONS = {{
    "nan": lambda model: np.where(np.arange(len(model)) == 3, np.float32("nan"), model),
    "shape": lambda model: model[:-1],
    "dtype": lambda model: model.astype(np.float64),
    "scale": lambda model: model * np.float32(1e9),
}}

app = ClientApp()


@app.query("unskew")
def describe(message, context):
    return healthy_reply(message, context)


@app.train("unskew")
def train(message, context):
    kind = fault(message, context)
    if kind == "sleep":
        mark = Path(context.run_config["out"]) / f"asleep-{{context.node_config['partition-id']}}"
        if not mark.exists():
            mark.touch()
            time.sleep(3600)
    reply = healthy_reply(message, context, broken=kind == "raise")
    if kind in CORRUPTIONS:
        arrays = dict(reply.content.array_records["arrays"])
        arrays["model"] = Array(CORRUPTIONS[kind](arrays["model"].numpy()))
        reply.content["arrays"] = ArrayRecord(arrays)
    return reply
'''


TABLE_SERVER = '''
"""A server whose nodes have raw tables, and which has raw rows as its common test."""

import csv
from pathlib import Path

from flwr.serverapp import ServerApp
from task import METHOD, settings

from unskew.flower import Strategy

app = ServerApp()


@app.main()
def main(grid, context):
    config = context.run_config
    with (Path(config["tables"]) / "common.csv").open() as file:
        tests = list(csv.DictReader(file))
    strategy = Strategy(
        METHOD, nodes=config["nodes"], wait=config["wait"], out=config["out"], metric="auc",
        common=(tests, [row["outcome"] for row in tests]), **settings(config),
    )
    strategy.start(grid)
'''

TABLE_CLIENT = '''
"""Nodes that each have a CSV file of their own."""

from pathlib import Path

from task import METHOD

from unskew.flower import NodeTable, client_app


def samples(context):
    file = f"{context.node_config['partition-id']}.csv"
    return NodeTable(Path(context.run_config["tables"]) / file, label="outcome")


app = client_app(None, samples, METHOD)
'''


def make_table_app(folder: Path, method: str, tables: Path) -> Path:
    """Write an app whose nodes have raw tables, in files named by their partition-id.

    The server tests on ``common.csv``.
    """
    make_app(folder, method)
    (folder / "server_app.py").write_text(TABLE_SERVER)
    (folder / "client_app.py").write_text(TABLE_CLIENT)
    project = folder / "pyproject.toml"
    section = "[tool.flwr.app.config]\n"
    project.write_text(project.read_text().replace(section, f'{section}tables = "{tables}"\n'))
    return folder


def make_app(folder: Path, method: str) -> Path:
    """Write an app like ``unskew flower new``, small enough for a test, whose quorum can be set."""
    write_app(
        folder, method=method, data="digits", model="mlp:hidden=8", clients=NODES,
        skew="dirichlet:alpha=1", rounds=2,
    )  # fmt: skip
    project = folder / "pyproject.toml"
    project.write_text(project.read_text().replace("# quorum = 2 ", "quorum = 2 "))
    return folder


def make_faulty_app(folder: Path, method: str) -> Path:
    """Write an app whose nodes fail as its setting ``faults`` says."""
    make_app(folder, method)
    (folder / "client_app.py").write_text(FAULTY_CLIENT)
    project = folder / "pyproject.toml"
    section = "[tool.flwr.app.config]\n"
    project.write_text(project.read_text().replace(section, f'{section}faults = ""\n'))
    return folder


def settings(out: Path, **changes) -> dict:
    """Return the config of a run without evaluation, which would take one more message phase."""
    return {"out": str(out), "train.evaluate_every": 0, **changes}


def run_app(federation: Loopback, app: Path, config: dict) -> str:
    """Run an app until it has completed and return the server's log."""
    outcome = federation.run(app, config, RUN_TIMEOUT)
    assert outcome.completed, outcome.log
    return outcome.log


def parity(app: Path, config: dict) -> Parity:
    """Repeat a run in this process and compare."""
    return check_parity(app, with_changes(read_app_config(app), config, app), Path(config["out"]))


def rounds(out: Path) -> list[dict]:
    return read_lines(out / "metrics.jsonl")


def until(condition, description: str, seconds: float = RUN_TIMEOUT) -> None:
    assert wait_until(condition, seconds), f"not within {seconds} s: {description}"


def names_of(out: Path) -> list[str]:
    return list(json.loads((out / "nodes.json").read_text())["nodes"])
