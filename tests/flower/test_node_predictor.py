"""Nodes keep the model that they use, and predict with it without the server."""

import json

import numpy as np
import pytest
from torch import nn

from toys import small_federation
from unskew.cli.flower_up import RoundPrinter
from unskew.data.columns import Columns
from unskew.errors import UnskewError, UnskewWarning
from unskew.runs.read import read_run

grids = pytest.importorskip("grids")

from dataclasses import replace  # noqa: E402

from node_tables import run_on_nodes  # noqa: E402

from hospitals import HOSPITALS, hospital_rows, write_csv  # noqa: E402
from unskew.flower import node_predictor  # noqa: E402

OPTIONS = {"rounds": 2, "lr": 0.1, "batch_size": 8}


@pytest.fixture
def unskew(tmp_path, monkeypatch, capsys):
    """Run a command; return its exit code, and what it prints on both streams."""
    monkeypatch.chdir(tmp_path)

    def run_command(*arguments):
        from unskew.cli import main

        monkeypatch.setattr("sys.argv", ["unskew", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, *capsys.readouterr()

    return run_command


def reported(run):
    table = [each for each in run.client_tables if each["kind"] == "personal"][-1]
    return dict(zip(table["client"], table["accuracy"], strict=True))


def accuracies(state, federation):
    found = {}
    for k in np.flatnonzero(federation.test.sizes).tolist():
        x, y = federation.test.client(k)
        predicted = node_predictor(state, node=str(k)).predict(x)
        found[k] = float((predicted == y).mean())
    return found


@pytest.mark.parametrize(
    "method",
    ["fedavg", "ditto", "local", "fedrep:head_epochs=1", "fedbabu:epochs=1", "ifca", "fedala",
     "fedrod", "fedproto"],
)  # fmt: skip
def test_a_node_predicts_with_the_model_that_was_evaluated(method, tmp_path):
    federation = small_federation(unit=True)
    strategy = grids.run_on_grid(federation, method, state=tmp_path / "state", **OPTIONS)
    expected = reported(strategy.run)
    assert accuracies(tmp_path / "state", federation) == pytest.approx(expected)


@pytest.mark.parametrize("out", [None, "run"])
def test_the_server_says_where_personal_models_are(out, tmp_path):
    federation = small_federation(unit=True)
    folder = None if out is None else tmp_path / out
    strategy = grids.run_on_grid(federation, "ditto", out=folder, **OPTIONS)
    with pytest.raises(UnskewError, match="stay on their nodes, where unskew flower predict uses"):
        strategy.run.predictor.predict(federation.test.x, client="0")
    run = strategy.run if folder is None else read_run(folder)
    with pytest.warns(UnskewWarning, match="stay on their nodes, where unskew flower") as caught:
        run.predictor.predict(federation.test.x)
    assert "set client" not in str(caught[0].message)


def test_a_run_on_nodes_without_a_global_model_names_no_client(tmp_path):
    federation = small_federation(unit=True)
    run = grids.run_on_grid(federation, "local", **OPTIONS).run
    with pytest.raises(UnskewError, match=r"trains no global model; .* stay on their nodes"):
        run.predictor.predict(federation.test.x)


def test_flower_up_shows_personal_models_and_names_the_metric(tmp_path, capsys):
    federation = small_federation(unit=True)
    for method in ("ditto", "fedavg"):
        options = {**OPTIONS, "metric": "macro_f1", "out": tmp_path / method}
        run = grids.run_on_grid(federation, method, **options).run
        RoundPrinter(tmp_path / method).print_new()
        header, *_, last = capsys.readouterr().out.splitlines()
        assert header.split("train loss")[1].split("seconds")[0].split() == (
            ["global", "macro_f1", "local", "macro_f1"]
            + ["personal", "macro_f1"] * (method == "ditto")
        )
        if method == "ditto":
            assert last.split()[-2] == f"{run.metrics[-1]['personal']['macro_f1']:.4f}"


def test_a_node_without_tests_keeps_its_model_too(tmp_path):
    federation = small_federation(unit=True)
    sizes = federation.test.sizes
    first = federation.test.client(0)
    only = Columns(*first, np.minimum(np.cumsum([0, *sizes]), sizes[0]))
    federation = replace(federation, test=only)
    strategy = grids.run_on_grid(federation, "fedper", state=tmp_path, **OPTIONS)
    assert list(reported(strategy.run)) == [0]
    models = {json_of(path)["node"] for path in tmp_path.glob("*/*/model/*.safetensors")}
    assert models == {"0", "1", "2", "3"}
    sent = [sent for _, sent, _ in strategy.grid.of_kind("evaluate.unskew")]
    assert len(sent) == 1 + 4  # all nodes are asked once, at the end


def json_of(path):
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["unskew"])


@pytest.mark.parametrize("prepare", ["federated", "local"])
def test_rows_of_a_table_are_predicted_on_the_node(prepare, tmp_path, unskew):
    options = {"state": tmp_path / "state", "prepare": prepare, "evaluate_every": 1}
    run_on_nodes(tmp_path / "tables", node={"holdout": 0.3}, **options)
    new = hospital_rows(40, seed=5)
    write_csv(tmp_path / "new.csv", new)
    code, output, _ = unskew(
        "flower", "predict", "new.csv", "--state", "state", "--node", HOSPITALS[0], "--json"
    )
    assert code == 0
    rows = json.loads(output)
    assert len(rows) == len(new)
    assert list(rows[0]) == ["row", "predicted", "p(died)", "p(left)"]
    hits = [row["predicted"] == own["outcome"] for row, own in zip(rows, new, strict=True)]
    assert np.mean(hits) > 0.6
    code, output, _ = unskew(
        "flower", "predict", "new.csv", "--state", "state", "--node", HOSPITALS[1], "--out", "p.csv"
    )
    assert code == 0
    assert output.startswith(f"p.csv: 40 rows, by fedavg on {HOSPITALS[1]}, 2 rounds, run ")
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[0] == "row,predicted,p(died),p(left)"
    assert len(lines) == 1 + len(new)


def test_arrays_are_predicted_from_a_file(tmp_path, unskew):
    federation = small_federation(unit=True)
    grids.run_on_grid(federation, "ditto", state=tmp_path / "state", **OPTIONS)
    np.save(tmp_path / "x.npy", federation.test.client(1)[0])
    code, output, _ = unskew("flower", "predict", "x.npy", "--state", "state", "--node", 1)
    assert code == 0
    assert "p(2)" in output
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    code, _, errors = unskew("flower", "predict", "x.csv", "--state", "state", "--node", 1)
    assert code == 2
    assert errors.startswith("error: x.csv: is not an .npy file, which this model needs")


def test_what_cannot_be_found_is_named(tmp_path, unskew):
    code, _, errors = unskew("flower", "predict", "x.npy", "--state", "state")
    assert (code, errors.count("\n")) == (2, 1)
    assert errors.startswith("error: state: holds no model; a node keeps it when a run ends")
    federation = small_federation(unit=True)
    grids.run_on_grid(federation, "fedavg", state=tmp_path, **OPTIONS)
    for options, text in (
        ({}, "node: .* has models of several; name one: 0, 1, 2, 3"),
        ({"node": "7"}, "node: '7' has no model in .*; these have: 0, 1, 2, 3"),
        ({"node": "1", "run": "x"}, "run: 'x' has no model in"),
    ):
        with pytest.raises(UnskewError, match=text):
            node_predictor(tmp_path, **options)
    damaged = next(tmp_path.glob("*/*/model/model.safetensors"))
    damaged.write_bytes(b"{}")
    with pytest.raises(UnskewError, match="is not the model of a node"):
        node_predictor(tmp_path, node="1")


def test_of_several_runs_the_last_one_counts(tmp_path):
    federation = small_federation(unit=True)
    first = grids.run_on_grid(federation, "fedavg", state=tmp_path, **OPTIONS)
    longer = OPTIONS | {"rounds": 5}
    last = grids.run_on_grid(federation, "fedavg", state=tmp_path, **longer)
    runs = [json_of(path)["run"] for path in tmp_path.glob("*/0/model/model.safetensors")]
    assert len(runs) == 2
    assert accuracies(tmp_path, federation) == pytest.approx(reported(last.run))
    x = federation.test.x
    newest = node_predictor(tmp_path, node="0").predict_proba(x)
    each = [node_predictor(tmp_path, node="0", run=run).predict_proba(x) for run in runs]
    assert sum(np.array_equal(newest, found) for found in each) == 1
    assert first.run.rounds == 2


def test_a_network_of_ones_own_is_given(tmp_path):
    federation = small_federation(unit=True)
    network = nn.Sequential(nn.Flatten(), nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    strategy = grids.run_on_grid(federation, "ditto", model=network, state=tmp_path, **OPTIONS)
    with pytest.raises(UnskewError, match="was trained with your network, whose code is not in"):
        node_predictor(tmp_path, node="1")
    x, y = federation.test.client(1)
    predicted = node_predictor(tmp_path, node="1", model=network).predict(x)
    assert (predicted == y).mean() == pytest.approx(reported(strategy.run)[1])
    with pytest.raises(UnskewError, match="its weights do not fit"):
        node_predictor(tmp_path, node="1", model=nn.Sequential(nn.Flatten(), nn.Linear(5, 3)))
