"""Nodes with raw tables and a number to predict: no classes are exchanged, and the same bits."""

import json

import numpy as np
import pytest
import torch

from hospitals import HOSPITALS, hospital_rows
from unskew.errors import UnskewError
from unskew.runs.read import read_run

grids = pytest.importorskip("grids")

from node_tables import COLUMNS, run_on_nodes, simulate  # noqa: E402


def stays(samples=200, seed=0, digits=2):
    """Return the rows of hospitals, with the days of a stay as the outcome."""
    rng = np.random.default_rng(seed)
    rows = hospital_rows(samples, seed)
    for row in rows:
        days = 20 + 8 * (row["outcome"] == "died") + rng.normal()
        row["outcome"] = f"{days:.{digits}f}"
    return rows


@pytest.mark.parametrize(
    ("prepare", "columns", "digits", "task"),
    [
        ("federated", None, 2, None),
        ("local", None, 0, "regression"),
        ("federated:epsilon=2", COLUMNS, 2, "regression"),
    ],
)
def test_nodes_and_a_simulation_give_the_same_bits(tmp_path, prepare, columns, digits, task):
    rows = stays(digits=digits)
    nodes = run_on_nodes(tmp_path, rows, prepare=prepare, columns=columns, node={"task": task}).run
    simulated = simulate(rows, prepare, columns=columns, task=task)
    assert torch.equal(grids.vector_of(nodes.model), grids.vector_of(simulated.model))
    assert nodes.metadata["target"] == simulated.metadata["target"]
    ours, theirs = (run.metadata["preprocessing"] for run in (nodes, simulated))
    assert ours["transform"] == theirs["transform"]
    assert [row["traffic"] for row in nodes.metrics] == [r["traffic"] for r in simulated.metrics]


def test_no_target_leaves_a_node(tmp_path):
    grid = run_on_nodes(tmp_path, stays()).grid
    for _, _, reply in grid.of_kind("query.unskew_prepare"):
        sent = json.loads(reply.content.config_records["reply"]["json"])
        assert "outcome" not in sent.get("columns", sent)
        assert "labels" not in sent


def test_a_common_test_of_raw_rows_and_predictions_are_in_units_of_the_target(tmp_path):
    tests = stays(40, seed=7)
    days = np.array([float(row["outcome"]) for row in tests])
    run = run_on_nodes(
        tmp_path, stays(), common=(tests, days), node={"holdout": 0.25}, out=tmp_path / "run",
        rounds=5, evaluate_every=5,
    ).run  # fmt: skip
    rmse = np.sqrt(np.mean((run.predictor.predict(tests) - days) ** 2))
    assert run.last("global", "rmse") == pytest.approx(rmse, rel=1e-5)
    assert rmse < np.std(days)
    assert run.last("local", "rmse") > 0
    loaded = read_run(tmp_path / "run").predictor
    assert loaded.predict(tests).tolist() == run.predictor.predict(tests).tolist()


def test_a_resumed_run_keeps_its_preparation(tmp_path):
    rows, out = stays(), {"out": tmp_path / "run", "state": tmp_path / "states"}
    run_on_nodes(tmp_path, rows, **out, rounds=1)
    longer = run_on_nodes(tmp_path, rows, **out, resume=True).run
    whole = run_on_nodes(tmp_path, rows).run
    assert torch.equal(grids.vector_of(longer.model), grids.vector_of(whole.model))
    with pytest.raises(UnskewError, match="its targets are classes, unlike those of the run"):
        run_on_nodes(tmp_path, **out, resume=True, rounds=3)


def test_the_task_may_be_that_of_the_app(tmp_path):
    rows = stays(digits=0)
    assert run_on_nodes(tmp_path, rows, app={"task": "regression"}).run.metric.name == "rmse"


def with_classes(*names):
    """Return rows in which some hospitals have classes instead of days."""
    rows = stays()
    for row in rows:
        if row["hospital"] in names:
            row["outcome"] = "1" if float(row["outcome"]) > 24 else "0"
    return rows


def test_mixed_nodes_are_one_line(tmp_path):
    with pytest.raises(UnskewError, match=r"^data: some nodes have numbers .*; set task$"):
        run_on_nodes(tmp_path, with_classes(*HOSPITALS[:2]))


def test_a_node_with_another_task_than_most_is_refused(tmp_path):
    rows = with_classes("west")
    run = run_on_nodes(tmp_path, rows).run
    assert run.clients == 3
    expected = simulate([row for row in rows if row["hospital"] != "west"])
    assert torch.equal(grids.vector_of(run.model), grids.vector_of(expected.model))


def test_nodes_that_all_have_one_number_have_nothing_to_learn(tmp_path):
    rows = [row | {"outcome": "4.5"} for row in stays()]
    with pytest.raises(UnskewError, match="target: has the same value in all training samples"):
        run_on_nodes(tmp_path, rows, node={"task": "regression"})


def test_a_regression_has_no_number_of_classes(tmp_path):
    with pytest.raises(UnskewError, match="classes: the target is a quantity"):
        run_on_nodes(tmp_path, stays(), classes=3)


def test_the_preview_lists_the_sums_of_targets(tmp_path):
    from unskew.flower.preprocessing_preview import preview_preprocessing

    listed = {row["kind of column"]: row for row in preview_preprocessing("federated")}
    assert listed["label (regression)"]["sent up by every node"] == "sum, sum of squares"
    grid = run_on_nodes(tmp_path, stays()).grid
    greetings = grid.of_kind("query.unskew")
    assert len(greetings) == 4
    for name, _, reply in greetings:
        days = [float(row["outcome"]) for row in stays() if row["hospital"] == name]
        sent = json.loads(reply.content.config_records["info"]["json"])["target"]
        assert sent == pytest.approx([sum(days), sum(day * day for day in days)])
