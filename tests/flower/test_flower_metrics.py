"""Tasks and metrics on Flower nodes: what they send, and what the server makes of it."""

import json
import logging
import math

import numpy as np
import pytest
import torch

import unskew as us
from unskew.errors import UnskewError
from unskew.flower.greeting import Admission, parse_node_info

grids = pytest.importorskip("grids")

OPTIONS = {"rounds": 2, "batch_size": 8, "lr": 0.1}


def data(*, regression=False):
    """Three sites; the last one tests on a single class."""
    random = np.random.default_rng(0)
    x = random.normal(size=(90, 4)).astype(np.float32)
    y = x.sum(1) + random.normal(size=90)
    y = 300 + 20 * y if regression else (y > 0).astype(int) * (np.arange(90) < 60)
    common = (x[:20], y[:20])
    return us.Federation.from_arrays(x, y, np.repeat(range(3), 30), holdout=0.4, common=common)


def on_grid(federation, method="fedavg", *, model="mlp:hidden=6", apps=None, **options):
    app = grids.client_app(model, federation, method, state=None, **(apps or {}))
    common = federation.common.x, federation.common.y
    return grids.run_on_grid(
        federation, method, model=model, app=app, common=common, **OPTIONS | options
    ).run


def spread(y, scores):
    return float(np.ptp(scores))


@pytest.mark.parametrize(
    ("method", "regression", "options"),
    [
        ("fedavg", False, {"metrics": ["auc", "calibration_error", spread], "metric": "auc"}),
        ("fedper", False, {"metrics": ["auc"]}),
        ("fedavg", True, {"loss": "huber"}),
        ("fedprox:mu=0.1+ida", True, {"metrics": ["r2", spread]}),
    ],
)
def test_metrics_and_tasks_are_those_of_a_simulation(method, regression, options):
    federation = data(regression=regression)
    apps = {"metrics": ["auc", "pooled_auc", "accuracy", spread]}
    on_flower = on_grid(federation, method, apps=apps, **options)
    simulated = us.train(
        federation, method, model="mlp:hidden=6", runner="loop", progress=False, **OPTIONS | options
    )
    assert torch.equal(grids.vector_of(on_flower.model), grids.vector_of(simulated.model))
    for ours, theirs in zip(simulated.metrics, on_flower.metrics, strict=True):
        for level in ("global", "local", "personal"):
            expected = {k: v for k, v in ours[level].items() if not k.startswith("pooled_")}
            assert theirs[level] == pytest.approx(expected, abs=1e-5, nan_ok=True)
    assert on_flower.metric == simulated.metric
    assert on_flower.metadata.get("target") == simulated.metadata.get("target")


def test_a_client_on_which_a_metric_is_undefined_still_counts_in_the_others():
    run = on_grid(data(), metrics=["auc"])
    table = next(table for table in reversed(run.client_tables) if table["kind"] == "local")
    assert table["client"] == [0, 1, 2]
    assert table["auc"][2] is None
    assert run.metrics[-1]["local"]["auc_undefined"] == 1
    assert "pooled_auc" not in run.metrics[-1]["local"]


def test_the_server_says_that_metrics_are_means_over_clients(caplog):
    with caplog.at_level(logging.INFO, logger="flwr"):
        on_grid(data(), metrics=["auc"], metric="auc")
    assert "local and personal metrics are means over clients" in caplog.text
    assert "local: auc 0." in caplog.text


def test_a_pooled_metric_is_refused_in_one_line():
    with pytest.raises(UnskewError, match="pooled_auc needs the predictions of all nodes"):
        on_grid(data(), metric="pooled_auc")


def test_a_node_without_the_function_refuses(caplog):
    with caplog.at_level(logging.WARNING, logger="flwr"):
        run = on_grid(data(), metrics=[spread])
    assert "cannot compute what the server asks for" in caplog.text
    assert "local" not in run.metrics[-1]
    assert run.metrics[-1]["global"]["spread"] > 0


def test_a_common_test_of_numbers_needs_nodes_with_numbers():
    x = np.zeros((30, 4), np.float32)
    with pytest.raises(UnskewError, match=r"common\[1\] must hold integer labels"):
        grids.run_on_grid(data(), "fedavg", common=(x, np.arange(30) / 7), **OPTIONS)


def test_a_resumed_regression_keeps_its_units(tmp_path):
    federation = data(regression=True)
    first = on_grid(federation, out=tmp_path / "run", rounds=1)
    path = tmp_path / "run" / "run.json"
    metadata = json.loads(path.read_text())
    assert metadata["target"] == first.metadata["target"]
    metadata["target"]["scale"] = 7.5
    path.write_text(json.dumps(metadata))
    again = on_grid(federation, out=tmp_path / "run", resume=True)
    assert again.metadata["target"]["scale"] == again.model.head.scale == 7.5


def info(**changes):
    known = {"name": "a", "samples": 4, "tests": 0, "shape": [2], "dtype": "<f4"}
    return {**known, "classes": 1, "words": 0, "target": [10.0, 30.0], **changes}


def test_what_a_node_reports_does_not_change_when_it_is_stored():
    """A resumed run compares nodes that come back with what it has stored."""
    reported = parse_node_info(json.dumps(info()))
    assert json.loads(json.dumps(reported)) == reported


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([1.0], "not a sum and a sum of squares"),
        (["1", 2.0], "not finite numbers"),
        ([math.nan, 1.0], "not finite numbers"),
        ([10.0, 20.0], "sums that no numbers have"),
    ],
)
def test_impossible_sums_of_targets_are_refused(target, message):
    assert parse_node_info(json.dumps(info()))["target"] == [10.0, 30.0]
    assert "target" not in parse_node_info(json.dumps(info(target=None)))
    with pytest.raises(ValueError, match=message):
        parse_node_info(json.dumps(info(target=target)))


def test_a_node_with_other_units_or_another_task_is_refused():
    infos = {name: info(name=name) for name in "abc"}
    infos["d"] = info(name="d", target=[1e6, 1e12])
    assert "same units" in Admission().refused(infos)["d"]
    infos["d"] = info(name="d", classes=2, target=None)
    assert "a number to predict" in Admission().refused(infos)["d"]


def test_a_loss_whose_square_is_infinite_is_left_out():
    def spoil(name, kind, reply):
        if (name, kind) == ("2", "evaluate.unskew"):
            reply.content["metrics"]["local/loss"] = 1e300
        return reply

    row = on_grid(data(regression=True), spoil=spoil).metrics[-1]
    assert row["not_evaluated"] == ["2"]
    assert row["local"]["loss"] < 1e6
    assert row["local"]["sd"] is not None
