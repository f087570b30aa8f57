"""``unskew data check``, and what comparisons say about doubtful data and results."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes

from unskew.errors import DataWarning


def write_table(path, x, y, *, target="ill"):
    site = np.array(["north", "south", "east"])[np.arange(len(y)) % 3]
    header = ",".join([*(f"f{i}" for i in range(x.shape[1])), target, "site"])
    rows = [
        ",".join([*map(str, row), str(label), s]) for row, label, s in zip(x, y, site, strict=True)
    ]
    path.write_text("\n".join([header, *rows, ""]))


@pytest.fixture
def visits(terminal, tmp_path):
    """Cells with unscaled features of three hospitals."""
    x, y = load_breast_cancer(return_X_y=True)
    write_table(tmp_path / "visits.csv", x[:, :5].round(5), y)
    return "visits.csv", "--label-column", "ill", "--holdout", "0.2"


def run_with_warnings(terminal, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("default", DataWarning)
        return terminal.run(*arguments)


def test_unscaled_columns_are_said_before_and_the_consequence_beside_the_row(terminal, visits):
    name, *columns = visits
    command = ("--data", name, *columns, "--client-column", "site", "--methods", "fedavg,mean")
    command += ("--seeds", "2", "--rounds", "3", "--lr", "0.5", "--out", "runs")
    command += ("--prepare", "none")
    code, output, errors = run_with_warnings(terminal, "compare", *command)
    assert code == 0
    assert errors.count("\n") == 1
    assert errors.startswith("warning: visits: columns: are on unlike scales: column 'f3' spans")
    assert "most frequent class" in output
    assert "fedavg: collapsed in 2 of 2 seeds: no better than always predicting" in output
    run = json.loads(Path("runs/fedavg/seed0/run.json").read_text())
    assert [finding["subject"] for finding in run["findings"]] == ["columns"]
    page = Path("runs/report.html").read_text()
    assert "Check of the data" in page
    assert "are on unlike scales: column &#39;f3&#39;" in page
    # The page can be made again from the folder.
    assert terminal.output("report", "runs")
    assert "Check of the data" in Path("runs/report.html").read_text()


def test_a_forgotten_client_column_is_asked_for(terminal, visits):
    output = terminal.output("data", "check", *visits, "--features", "f1,f4")
    assert "warning: clients: there is one client, so nothing is federated" in output
    assert "did you forget --client-column" in output


def test_a_quantity_is_not_compared_as_classes(terminal, tmp_path):
    x, y = load_diabetes(return_X_y=True)
    write_table(tmp_path / "sugar.csv", x.round(4), y + 0.5, target="level")
    options = ("--label-column", "level", "--client-column", "site", "--holdout", "0.2")
    assert terminal.output("data", "check", "sugar.csv", *options) == "sugar: nothing found\n"
    options += ("--task", "multiclass")
    error = terminal.error("compare", "--data", "sugar.csv", *options)
    assert error.startswith("error: sugar: target: has ")
    assert "it looks like a quantity or an id" in error
    code, output, errors = terminal.run("data", "check", "sugar.csv", *options)
    assert (code, errors) == (1, "")
    assert "error: target: has " in output
    code, output, errors = terminal.run("data", "check", "sugar.csv", *options, "--json")
    found = json.loads(output)
    assert (code, found["ok"], found["name"]) == (1, False, "sugar")
    assert found["findings"][0]["severity"] == "error"


def test_check_reads_a_table_as_a_comparison_does(terminal, visits):
    name, *columns = visits
    Path("wards.csv").write_text("\n".join(
        f"{line},{('ward', 'eyes', 'heart')[i and 1 + i % 2]}"
        for i, line in enumerate(Path(name).read_text().splitlines())
    ))  # fmt: skip
    check = ("data", "check", "wards.csv", *columns, "--client-column", "site")
    assert terminal.output(*check) == "wards: nothing found\n"
    raw = terminal.output(*check, "--prepare", "none", "--features", "f0,f3,f4")
    assert "warning: columns: are on unlike scales" in raw
    assert "must be a kind" in terminal.error(*check, "--columns", "f0=young")


def test_check_of_a_source(terminal):
    assert terminal.output("data", "check", "digits") == "digits: nothing found\n"
    assert "unskew data check visits.csv" in terminal.output("data", "check", "--help")


def test_a_method_without_effect_says_why(terminal, data):
    command = ("compare", "--data", str(data), "--methods", "fedbn,fedavg", "--rounds", "2")
    output = terminal.output(*command, "--seeds", "1", "--model", "mlp")
    assert "fedbn: identical to fedavg, because this network has no BatchNorm" in output
    assert "fedavg: identical" not in output


def test_run_as_json_has_findings_and_remarks(terminal, data, tmp_path):
    (tmp_path / "run.toml").write_text(
        f'method = "fedavg"\n[data]\nname = "{data}"\n[train]\nrounds = 2\nlr = 1e-9\n'
    )
    found = terminal.json("run", "run.toml")
    assert found["remarks"][0].startswith("collapsed: no better than always predicting")
    assert isinstance(found["findings"], list)


@pytest.mark.parametrize("options", [(), ("--task", "regression")])
def test_a_target_with_one_value_is_refused(terminal, tmp_path, options):
    x = np.random.default_rng(0).normal(size=(60, 3))
    write_table(tmp_path / "one.csv", x, np.ones(60, int))
    table = ("one.csv", "--label-column", "ill", "--client-column", "site", "--holdout", "0.2")
    table += options
    message = "target: has the same value in all training samples"
    code, shown, _ = terminal.run("data", "check", *table)
    assert (code, f"error: {message}" in shown) == (1, True)
    command = ("compare", "--data", *table, "--rounds", "2", "--seeds", "1")
    assert terminal.error(*command, "--methods", "fedavg") == (
        f"error: {message}; there is nothing to learn: name another column\n"
    )
    # A network that learns the density of the features needs no target.
    others = ("--methods", "fedavg", "--model", "vae:hidden=4", "--margin", "2")
    assert terminal.output(*command, *others)
