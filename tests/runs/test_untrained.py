"""A training that diverged completely is not a result."""

import pytest

import unskew as us
from unskew.errors import UnskewWarning
from unskew.report.charts import all_charts
from unskew.runs.runs import Runs

DIVERGED = {"model": "mlp:hidden=8", "rounds": 2, "lr": 1e30, "batch_size": 2}


@pytest.fixture(scope="module")
def runs(federation):
    good = us.train(federation, model="mlp:hidden=8", rounds=2)
    with pytest.warns(UnskewWarning, match="left the model as it was"):
        bad = us.train(federation, "fedprox", **DIVERGED)
    return Runs([bad, good])


def test_failed_rounds_are_in_the_table(runs):
    assert [(run.failed_rounds, run.is_untrained) for run in runs] == [(2, True), (0, False)]
    table = runs.table_with_verdict()
    assert table.columns[-2:] == ["failed rounds", "against fedavg"]
    assert [row[-2:] for row in table.rows] == [["0", "baseline"], ["2", "not trained"]]
    assert [summary.failed_rounds for summary in runs.summaries()] == [0, 2]


def test_a_method_whose_model_never_changed_is_not_judged(runs):
    assert runs.untrained == ["fedprox"]
    assert runs.verdict().baseline == "fedavg"
    assert runs.verdict().pairs == ()
    assert Runs([runs[0]]).verdict() is None


def test_failed_rounds_are_on_the_page(runs, tmp_path):
    page = runs.report(tmp_path / "page.html").read_text()
    assert "failed rounds" in page
    assert "not trained" in page
    Runs([runs[0]]).report(tmp_path / "page.html")


def test_an_unfinished_run_is_marked(federation):
    run = us.train(federation, model="logistic", rounds=2)
    run.metadata["configuration"]["rounds"] = 5
    assert run.table().notes[0] == "unfinished: seed 0 has 2 of 5 rounds"
    assert "fedavg: unfinished: seed 0 has 2 of 5 rounds" in Runs([run]).table().notes


def test_a_preparatory_stage_is_no_training_loss(federation):
    run = us.train(federation, model="logistic", rounds=2)
    for row in run.metrics:
        row["stage"] = "density"
    run.client_tables = [table | {"stage": "density"} for table in run.client_tables]
    assert (run.task_rounds, run.is_untrained) == (0, False)
    names = [chart.name for chart in all_charts(Runs([run]))]
    assert "train-loss" not in names
