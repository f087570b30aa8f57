"""Metrics of all predictions, through the engine: what a run records, shows and is judged by."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import unskew as us
from unskew.errors import UnskewError
from unskew.models.functional import FunctionalModel
from unskew.report.charts import all_charts
from unskew.report.page import read_comparison
from unskew.report.reproduce import python_text
from unskew.runs.read import read_run, read_runs
from unskew.runs.runs import Runs

OPTIONS = {"model": "logistic", "rounds": 2, "batch_size": 8, "lr": 0.5, "progress": False}


def sites(*, common=True, classes=2):
    """Three sites with test samples; the last one has one class only."""
    random = np.random.default_rng(0)
    x = random.normal(size=(160, 5)).astype(np.float32)
    y = (x[:, :2].sum(1) + random.normal(size=160) > 0).astype(int)
    if classes > 2:
        y += (x[:, 2] > 0.5) & (y > 0)
    y[80:120] = 0
    options = {"common": (x[120:], y[120:])} if common else {}
    client = np.repeat(np.arange(3), 40)
    return us.Federation.from_arrays(
        x[:120], y[:120], client, holdout=0.5, classes=classes, **options
    )


def probabilities(run, x):
    with torch.no_grad():
        return torch.softmax(run.model(torch.from_numpy(x)).double(), -1).numpy()


def test_the_pooled_auc_is_that_of_scikit_learn():
    federation = sites()
    run = us.train(federation, metrics=["auc"], **OPTIONS)
    last, test, common = run.metrics[-1], federation.test, federation.common
    pooled = roc_auc_score(test.y, probabilities(run, test.x)[:, 1])
    assert last["local"]["pooled_auc"] == pytest.approx(pooled, abs=1e-9)
    of_common = roc_auc_score(common.y, probabilities(run, common.x)[:, 1])
    assert last["global"]["auc"] == pytest.approx(of_common, abs=1e-9)


def test_the_mean_over_clients_leaves_out_clients_for_which_a_metric_is_undefined():
    federation = sites()
    run = us.train(federation, metrics=["auc"], **OPTIONS)
    values = []
    for k in (0, 1):
        x, y = federation.test.client(k)
        values.append(roc_auc_score(y, probabilities(run, x)[:, 1]))
    local = run.metrics[-1]["local"]
    assert local["auc"] == pytest.approx(np.mean(values), abs=1e-9)
    assert local["auc_min"] == pytest.approx(min(values), abs=1e-9)
    assert local["auc_undefined"] == 1
    table = next(t for t in reversed(run.client_tables) if t["kind"] == "local")
    assert table["auc"][:2] == pytest.approx(values, abs=1e-9)
    assert table["auc"][2] is None


def test_metrics_change_nothing_else():
    plain, measured = (us.train(sites(), **OPTIONS, **more) for more in ({}, {"metrics": ["auc"]}))
    for with_none, with_auc in zip(plain.metrics, measured.metrics, strict=True):
        for level in ("global", "local", "personal"):
            assert with_none[level] == {name: with_auc[level][name] for name in with_none[level]}
    assert "metrics" not in plain.metadata
    assert set(plain.metrics[0]["global"]) == {"accuracy", "loss"}


def test_predictions_are_not_gathered_by_default(monkeypatch):
    monkeypatch.setattr(FunctionalModel, "capture_passes", None)
    us.train(sites(), **OPTIONS)
    with pytest.raises(TypeError):
        us.train(sites(), metrics=["auc"], **OPTIONS)


def test_personal_models_are_measured_with_their_own_predictions():
    run = us.train(sites(), "fedper", metrics=["auc"], **OPTIONS | {"model": "mlp:hidden=4"})
    last = run.metrics[-1]
    assert last["personal"]["pooled_auc"] != last["local"]["pooled_auc"]


def test_a_method_with_several_models_has_their_mean():
    run = us.train(sites(), "ifca:models=2", metrics=["auc"], **OPTIONS)
    assert 0 <= run.metrics[-1]["outputs"]["auc"] <= 1


def test_several_classes_have_recalls_and_an_auc_versus_the_rest():
    federation = sites(classes=3)
    run = us.train(federation, metrics="auc,recall,macro_f1", **OPTIONS)
    common, found = federation.common, run.metrics[-1]["global"]
    scores = probabilities(run, common.x)
    expected = roc_auc_score(common.y, scores, multi_class="ovr")
    assert found["auc"] == pytest.approx(expected, abs=1e-9)
    hits = scores.argmax(1)[common.y == 1] == 1
    assert found["recall_1"] == pytest.approx(hits.mean())


def share_of_ones(y, scores):
    return float(np.mean(scores))


def test_a_function_of_the_user_is_recorded_shown_and_read_back(tmp_path):
    options = OPTIONS | {"metrics": ["auc", share_of_ones], "metric": share_of_ones}
    run = us.train(sites(common=False), out=tmp_path / "run", **options)
    assert run.metric.name == "share_of_ones"
    assert run.level == "local"
    read = read_run(tmp_path / "run")
    assert read.metric == run.metric
    assert read.table().columns[-2:] == ["accuracy", "auc"]
    assert "local share_of_ones=" in repr(read)
    configuration = json.loads((tmp_path / "run" / "run.json").read_text())["configuration"]
    assert configuration["metrics"] == ["auc", "share_of_ones"]
    assert "metrics=['auc', your_metric_share_of_ones]" in python_text(Runs([read]))


def test_a_run_is_not_resumed_with_other_metrics(tmp_path):
    us.train(sites(), out=tmp_path, metrics=["auc"], **OPTIONS)
    with pytest.raises(us.UnskewError, match=r"settings\.metrics was"):
        us.train(sites(), out=tmp_path, resume=True, metrics=["f1"], **OPTIONS)


def test_a_comparison_is_judged_by_the_metric(tmp_path):
    options = OPTIONS | {"seeds": 2, "out": tmp_path}
    runs = us.compare(sites(common=False), "fedavg,mean", metric="auc", metrics=["f1"], **options)
    table = runs.table()
    assert table.columns[1] == "local auc"
    assert {"worst", "pooled", "accuracy", "f1"} <= set(table.columns)
    assert "±" in table.rows[0][1]
    assert any("auc is undefined on the tests of 1 client" in note for note in table.notes)
    assert runs.verdict().metric.name == "auc"
    assert runs.ranking()[0] == runs.verdict().leader
    page = (tmp_path / "report.html").read_text()
    assert '<figure id="local-auc">' in page
    assert '<figure id="pooled_auc">' in page
    assert '<figure id="local-f1">' in page
    assert "metrics=[&#39;f1&#39;, &#39;auc&#39;], metric=&#39;auc&#39;" in page
    by_f1 = Runs(list(runs), metric="pooled_f1")
    assert by_f1.table().columns[1] == "pooled_f1"
    assert not np.isnan(by_f1.summaries()[0].accuracy)
    titles = {chart.name: chart.title for chart in all_charts(by_f1)}
    assert titles["local-pooled_f1"] == "F1 of all local tests together"
    assert "clients-local" in titles
    with pytest.raises(us.UnskewError, match="did you mean 'pooled_auc'"):
        Runs(list(runs), metric="pooled_aucc")


def test_a_report_judges_a_metric_where_it_was_measured(tmp_path):
    us.compare(sites(), "fedavg,mean", metric="auc", **OPTIONS, seeds=1, out=tmp_path)
    known, runs = read_comparison(tmp_path), read_runs([tmp_path])
    assert known.sorted(runs).level == known.sorted(runs, "accuracy").level == "global"
    pooled = known.sorted(runs, "pooled_auc")
    assert (pooled.level, len(pooled.verdict().means)) == ("local", 2)


def test_personal_models_are_judged_by_the_metric():
    runs = us.compare(sites(common=False), "fedavg,local", metric="auc", seeds=1, **OPTIONS)
    table = runs.table()
    assert table.columns[1:5] == ["personal auc", "local", "worst", "pooled"]
    rows = {row[0]: row for row in table.rows}
    assert rows["local"][2] == "-" != rows["fedavg"][2] == rows["fedavg"][1]
    assert "-" not in (rows["local"][1], rows["local"][3], rows["local"][4])
    assert any("auc is undefined on the tests of 1 client" in note for note in table.notes)


def test_tuning_is_decided_by_the_metric():
    for metric in ("auc", "pooled_auc"):
        runs = us.compare(
            sites(),
            "fedavg",
            seeds=1,
            metric=metric,
            tune={"lr": [0.01, 0.5], "rounds": 1, "budget": 5},
            **OPTIONS,
        )
        tuning = runs[0].metadata["tuning"]
        assert tuning["metric"] == metric
        assert all(0 <= trial["value"] <= 1 for trial in tuning["results"])


def test_a_target_of_another_metric_is_checked_before_training():
    with pytest.raises(us.UnskewError, match="target must be auc from 0 to 1"):
        us.compare(sites(), "fedavg", metric="auc", target=80, **OPTIONS)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ([3], "settings: metrics: 3 is neither the name of a metric nor a function"),
        (["rmse"], "rmse is for a regression target and this one is binary"),
    ],
)
def test_wrong_metrics_are_one_line(metrics, message):
    with pytest.raises(us.UnskewError, match=message):
        us.train(sites(), metrics=metrics, **OPTIONS)


def test_a_metric_that_works_in_place_changes_nothing_else():
    def emptied(y, scores):
        y[:] = 0
        scores[:] = 0
        return 1.0

    federation = sites()
    labels = federation.test.y.copy()
    plain = us.train(federation, "fedavg", metrics=["f1"], **OPTIONS)
    run = us.train(federation, "fedavg", metrics=[emptied, "f1"], **OPTIONS)
    for metric in ("accuracy", "f1", "pooled_f1"):
        assert run.last("local", metric) == plain.last("local", metric)
    assert np.array_equal(federation.test.y, labels)


@pytest.mark.parametrize(
    ("returned", "found"),
    [(None, "None"), (np.ones(2), r"ndarray of shape \(2,\)"), ("0.5", "str"), ([1.0], "list")],
)
def test_a_metric_must_return_one_number(federation, returned, found):
    def mine(y, scores):
        return returned

    message = rf"metrics: mine returned {found}, and must return one number \(.*, line \d+\)$"
    with pytest.raises(UnskewError, match=message):
        us.train(federation, "fedavg", metrics=[mine], **OPTIONS)


@pytest.mark.parametrize("value", [True, np.float32(1), np.ones(()), torch.ones(())])
def test_a_number_of_any_library_is_one_number(federation, value):
    metric = us.make_metric(lambda y, scores: value, name="one")
    run = us.train(federation, "fedavg", metrics=[metric], **OPTIONS)
    assert run.last("local", "one") == 1.0
