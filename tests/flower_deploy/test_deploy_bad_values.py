"""On a real SuperLink, one node of seven sends values out of range: nobody else is affected."""

import json
import shutil
import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("flwr")

sys.path.insert(0, str(Path(__file__).parents[1] / "flower"))

import bad_values
import grids
from bad_values import BAD, MEASURED, TRAIN, bad_forms, bad_numbers, declared
from deployments import names_of, rounds, run_app, settings

from unskew.flower.loopback.apps import load_task, read_app_config
from unskew.flower.loopback.federation import Loopback
from unskew.flower.loopback.parity import final_tensors
from unskew.flower.scaffolding import write_app
from unskew.methods import make_method

pytestmark = pytest.mark.long

NODES, ROUNDS = 7, 3
VALUES = {
    "fednova": "fednova/effective_step",
    "scaffold": "scaffold/control",
    "intrac": "train_accuracy",
    "feddisco": "label_counts",
    "ifca:models=2": "ifca/cluster",
}

BAD_CLIENT = '''
"""Node BAD sends another wrong value in every round."""

import json

from bad_values import BAD, MEASURED, bad_forms, bad_numbers, declared, sending
from flwr.clientapp import ClientApp
from task import METHOD, MODEL, federation

import unskew.flower
from unskew.methods import make_method

VALUE = "$value"
app = ClientApp()


def good_reply(message, context):
    samples = federation(context.run_config)
    return unskew.flower.client_app(MODEL, samples, METHOD)(message, context)


@app.query("unskew")
def describe(message, context):
    return good_reply(message, context)


@app.train("unskew")
def train(message, context):
    reply = good_reply(message, context)
    value = declared(make_method(METHOD))[VALUE]
    forms = list((bad_numbers if VALUE in MEASURED else bad_forms)(value).values())
    round_ = json.loads(message.content.config_records["request"]["json"])["round"]
    node = str(context.node_config["partition-id"])
    return sending(VALUE, forms[-1 - round_])(node, "train.unskew", reply)
'''


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with Loopback(tmp_path_factory.mktemp("federation"), NODES) as started:
        yield started
    assert started.programs.processes == []


def model_without_the_bad_node(app, method):
    def dropping(name, kind, reply):
        return None if (name, kind) == (BAD, TRAIN) else reply

    config, task = read_app_config(app), load_task(app)
    options = {**task.settings(config), "rounds": ROUNDS, "evaluate_every": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return grids.run_on_grid(
            task.federation(config), method, model=task.MODEL, spoil=dropping, **options
        ).run.model


@pytest.mark.parametrize("method", VALUES)
def test_one_node_of_seven_is_rejected_and_the_model_is_that_of_the_others(
    federation, tmp_path, method
):
    app, out, value = tmp_path / "app", tmp_path / "run", VALUES[method]
    write_app(
        app, method=method, data="digits", model="mlp:hidden=8", clients=NODES,
        skew="dirichlet:alpha=1", rounds=ROUNDS,
    )  # fmt: skip
    (app / "client_app.py").write_text(BAD_CLIENT.replace("$value", value))
    shutil.copy(bad_values.__file__, app)
    forms = (bad_numbers if value in MEASURED else bad_forms)(declared(make_method(method))[value])
    assert len(forms) >= ROUNDS
    run_app(federation, app, settings(out))
    assert len(rounds(out)) == ROUNDS
    assert names_of(out)[int(BAD)] == BAD
    for row in rounds(out):
        assert list(row["rejected"]) == [BAD]
        assert row["rejected"][BAD].startswith(f"{BAD}: ")
        assert value in row["rejected"][BAD]
        assert not {"missing", "kept_model"} & set(row)
    manifest = json.loads((out / "nodes.json").read_text())
    assert len(manifest["nodes"]) == NODES
    expected = grids.vector_of(model_without_the_bad_node(app, method))
    assert final_tensors(out)["/vector"].equal(expected)
