"""On a real SuperLink, one node of five sends values out of range: nobody else is affected."""

import shutil
import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("flwr")

sys.path.insert(0, str(Path(__file__).parents[1] / "flower"))

import bad_values
import grids
from bad_values import BAD, TRAIN
from deployments import names_of, rounds, run_app, settings

from unskew.flower.loopback.apps import load_task, read_app_config
from unskew.flower.loopback.federation import Loopback
from unskew.flower.loopback.parity import compare_tensors, final_tensors
from unskew.flower.scaffolding import write_app

pytestmark = pytest.mark.long

METHOD = "ifca:models=2+fednova+feddisco+intrac+scaffold"
BAD_VALUES = {
    "ifca/cluster": "largest",
    "fednova/effective_step": "nan",
    "label_counts": "more",
    "train_accuracy": "above",
    "scaffold/control": "enormous",
}
"""What the bad node sends wrongly, and how: one value per round."""
NODES = 5

BAD_CLIENT = f'''
"""Node {BAD} sends another value out of range in every round."""

import json

from bad_values import bad_forms, declared, sending
from flwr.clientapp import ClientApp
from task import METHOD, MODEL, federation

import unskew.flower
from unskew.methods import make_method

BAD_VALUES = {BAD_VALUES}
app = ClientApp()


def good_reply(message, context):
    samples = federation(context.run_config)
    return unskew.flower.client_app(MODEL, samples, METHOD)(message, context)


@app.query("unskew")
def describe(message, context):
    return good_reply(message, context)


@app.train("unskew")
def train(message, context):
    round_ = json.loads(message.content.config_records["request"]["json"])["round"]
    value, form = list(BAD_VALUES.items())[round_]
    change = bad_forms(declared(make_method(METHOD))[value])[form]
    node = str(context.node_config["partition-id"])
    return sending(value, change)(node, "train.unskew", good_reply(message, context))
'''


def run_without_the_bad_node(app, out):
    """Repeat a run in this process; the bad node takes part, but none of its uploads arrive."""

    def dropping(name, kind, reply):
        return None if (name, kind) == (BAD, TRAIN) else reply

    config, task = read_app_config(app), load_task(app)
    options = {**task.settings(config), "evaluate_every": 0, "out": out}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        grids.run_on_grid(
            task.federation(config), METHOD, model=task.MODEL, spoil=dropping, **options
        )


def test_one_node_of_five_is_rejected_and_the_model_is_that_of_the_others(tmp_path):
    app, out = tmp_path / "app", tmp_path / "run"
    write_app(
        app, method=METHOD, data="digits", model="mlp:hidden=8", clients=NODES,
        skew="dirichlet:alpha=1", rounds=len(BAD_VALUES),
    )  # fmt: skip
    (app / "client_app.py").write_text(BAD_CLIENT)
    shutil.copy(bad_values.__file__, app)
    with Loopback(tmp_path / "federation", NODES) as federation:
        run_app(federation, app, settings(out))
    assert len(rounds(out)) == len(BAD_VALUES)
    assert names_of(out) == ["0", "1", "2", BAD, "4"]
    for row, value in zip(rounds(out), BAD_VALUES, strict=True):
        assert list(row["rejected"]) == [BAD]
        assert row["rejected"][BAD].startswith(f"{BAD}: ")
        assert value in row["rejected"][BAD]
        assert not {"missing", "kept_model"} & set(row)
    run_without_the_bad_node(app, tmp_path / "without")
    found = compare_tensors(final_tensors(out), final_tensors(tmp_path / "without"))
    assert found.largest_difference == 0
    assert found.numbers > 3 * 600  # two models and the control variate
