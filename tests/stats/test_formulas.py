"""Metrics of all predictions, by hand and against scikit-learn."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from unskew.engine.metrics import make_metric, plan_metrics
from unskew.errors import UnskewError
from unskew.stats.formulas import FORMULAS
from unskew.stats.metric import ACCURACY, LOSS, Metric

Y = np.array([0, 0, 1, 1, 1])
P = np.array([0.1, 0.6, 0.4, 0.7, 0.9])


def value(name, y, scores, **options):
    return FORMULAS[name](**options)(np.asarray(y), np.asarray(scores, float))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("auc", 5 / 6),  # of six pairs, 0.4 is below 0.6
        ("pr_auc", (1 + 1 + 3 / 4) / 3),
        ("f1", 2 / 3),  # two of three predicted, two of three found
        ("macro_f1", (2 / 3 + 1 / 2) / 2),
        ("balanced_accuracy", (2 / 3 + 1 / 2) / 2),
        ("sensitivity", 2 / 3),
        ("brier", (0.01 + 0.36 + 0.36 + 0.09 + 0.01) / 5),
        ("calibration_error", (0.1 + 0.6 + 0.6 + 0.3 + 0.1) / 5),  # each sample has its own bin
    ],
)
def test_binary_metrics_by_hand(name, expected):
    assert value(name, Y, P) == pytest.approx(expected, abs=1e-12)


def test_sensitivity_depends_on_the_specificity():
    assert value("sensitivity", Y, P, specificity=0.5) == 1.0
    assert FORMULAS["sensitivity"](specificity=0.5).name("sensitivity") == "sensitivity_at_0.5"


def test_a_bin_compares_its_mean_probability_with_its_share():
    assert value("calibration_error", [0, 1, 1, 1], [0.72, 0.74, 0.76, 0.78]) == pytest.approx(0)
    assert value("calibration_error", [1, 1], [1.0, 1.0]) == 0


def test_multiclass_metrics_by_hand():
    y = np.array([0, 1, 2, 2])
    scores = np.array([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.1, 0.2, 0.7], [0.7, 0.2, 0.1]])
    assert value("recall", y, scores, label=2) == 0.5
    assert value("recall", y, scores, label=1) == 0.0
    assert value("macro_f1", y, scores) == pytest.approx((1 / 2 + 0 + 2 / 3) / 3)
    expected = sk.roc_auc_score(y, scores, multi_class="ovr")
    assert value("auc", y, scores) == pytest.approx(expected, abs=1e-12)
    # Confidences 0.6, 0.5, 0.7 and 0.7 in the bins 6, 5, 7, 7; correct are the first and the third.
    assert value("calibration_error", y, scores) == pytest.approx((0.4 + 0.5 + 0.4) / 4)


def test_errors_of_a_regression_by_hand():
    y, predicted = [1.0, 2.0, 4.0], [1.0, 3.0, 2.0]
    assert value("mae", y, predicted) == 1.0
    assert value("rmse", y, predicted) == pytest.approx(math.sqrt(5 / 3))
    assert value("r2", y, predicted) == pytest.approx(1 - 5 / (14 / 3))


@pytest.mark.parametrize("name", ["auc", "pr_auc", "f1", "sensitivity"])
def test_metrics_of_one_class_are_undefined(name):
    assert math.isnan(value(name, [0, 0], [0.1, 0.2]))


@pytest.mark.parametrize("name", FORMULAS)
def test_predictions_that_are_not_numbers_are_undefined(name):
    assert math.isnan(value(name, [0, 1], [0.5, math.nan]))


def test_r2_of_equal_targets_is_undefined():
    assert math.isnan(value("r2", [2.0, 2.0], [1.0, 2.0]))


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=2, max_size=30))
def test_binary_metrics_are_those_of_scikit_learn(samples):
    y = np.array([each[0] for each in samples], int)
    p = np.array([each[1] for each in samples])
    if 0 < y.sum() < len(y):
        assert value("auc", y, p) == pytest.approx(sk.roc_auc_score(y, p), abs=1e-9)
        assert value("pr_auc", y, p) == pytest.approx(sk.average_precision_score(y, p), abs=1e-9)
    assert value("brier", y, p) == pytest.approx(np.mean((p - y) ** 2))
    assert 0 <= value("calibration_error", y, p) <= 1


def plan(*names, metric=None, task="binary", classes=2):
    return plan_metrics(names, metric, task, classes, "mlp")


def test_a_plan_names_what_is_computed_and_judged():
    found = plan("f1", metric="pooled_auc")
    assert [each.name for each in found.computed] == ["f1", "auc"]
    assert found.judged == Metric("pooled_auc", more_is_better=True, is_share=True, no_skill=0.5)
    assert (found.judged.worst, found.judged.pooled) == ("auc_min", None)
    assert plan().computed == ()
    assert (plan().judged, plan(metric="accuracy").judged) == (None, ACCURACY)
    assert plan(metric="loss").judged.worst == "loss_max"
    assert (LOSS.worst, ACCURACY.worst) == ("max", "min")


def test_a_plan_of_recalls_has_one_per_class():
    found = plan("recall", task="multiclass", classes=3)
    assert [each.name for each in found.computed] == ["recall_0", "recall_1", "recall_2"]
    assert found.specs == ("recall",)


def cost(y, scores):
    return float(np.abs(y - scores).sum())


def test_a_plan_takes_functions():
    found = plan(cost, make_metric(cost, name="price", more_is_better=False), metric="price")
    assert found.values(Y, P)["cost"] == pytest.approx(1.7)
    assert found.judged == Metric("price", more_is_better=False)
    assert found.specs == ("cost", "price")


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["acu"], {}, "did you mean 'auc'"),
        (["rmse"], {}, "rmse is for a regression target and this one is binary; use auc"),
        (["pr_auc"], {"task": "multiclass"}, "pr_auc is for a binary target"),
        (["accuracy"], {"task": "regression"}, "a regression has no accuracy; use mae, rmse or r2"),
        (["auc"], {"task": None}, "mlp predicts neither classes nor values"),
        (["recall:label=2"], {}, "label must be below 2"),
        ([], {"metric": "recall"}, "one value per class"),
        ([lambda y, p: 0.0], {}, "cannot be the name of a metric"),
        ([cost, make_metric(max, name="cost")], {}, "two of them are named 'cost'"),
        ([], {"metric": "pooled_accuracy"}, "is not recorded"),
        (["sensitivity:specificity=2"], {}, "specificity"),
        (["missing.py:cost"], {}, "missing.py cannot be read"),
    ],
)
def test_metrics_that_cannot_be_computed_are_one_line(names, options, message):
    with pytest.raises(UnskewError, match=message) as error:
        plan(*names, **options)
    assert "\n" not in str(error.value)


def test_a_function_in_a_file_is_imported_only_where_that_is_permitted(tmp_path):
    (tmp_path / "own.py").write_text("def one(targets, scores):\n    return 1.0\n")
    spec = f"{tmp_path / 'own.py'}:one"
    found = plan(spec, metric=spec)
    assert (found.specs, found.judged.name) == (("one",), "one")
    with pytest.raises(UnskewError):
        plan_metrics([spec], None, "binary", 2, "mlp", files=False)
    with pytest.raises(UnskewError, match="has no function 'two'"):
        plan(f"{tmp_path / 'own.py'}:two")


def test_a_function_that_fails_is_named():
    def broken(y, scores):
        raise KeyError("x")

    found = plan(broken)
    with pytest.raises(UnskewError, match="broken failed: KeyError"):
        found.values(Y, P)
    with pytest.raises(UnskewError, match="broken failed"):
        found.client_values(Y, P)


def test_a_function_that_is_undefined_for_a_client_is_nan():
    def undefined(y, scores):
        raise ValueError("one class")

    assert math.isnan(plan(undefined).client_values(Y, P)["undefined"])


def test_numbers_that_are_no_shares_are_shown_as_they_are():
    r2 = Metric("r2", more_is_better=True)
    assert r2.text(0.4567, 0.01) == "0.4567 ± 0.01"
    assert r2.reached_by_all([0.4567, 0.5]) == pytest.approx(0.456)
    assert r2.reached_by_all([-0.4567, 0.5]) == pytest.approx(-0.457)
    assert Metric("rmse", more_is_better=False).reached_by_all([54.32, 55.55]) == 55.6
