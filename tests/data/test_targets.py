"""Targets of a regression: recognised, stored, hashed, held out and partitioned."""

from dataclasses import replace

import numpy as np
import pytest

import unskew as us
from unskew.data.load import federate
from unskew.data.sources import Source, source
from unskew.data.targets import as_targets, center_and_scale, in_bins, target_sums
from unskew.errors import UnskewError

NUMBERS = np.linspace(-1, 3, 60)


@pytest.mark.parametrize(
    ("y", "task", "kind"),
    [
        (NUMBERS, None, "f"),
        (np.arange(21.0), None, "f"),
        (np.arange(20.0), None, "i"),
        ([0.0, 1.0, 1.0], None, "i"),
        (np.arange(60), None, "i"),
        (np.arange(60), "regression", "f"),
        (np.arange(60.0), "multiclass", "i"),
        ([True, False], None, "i"),
    ],
)
def test_the_task_is_recognised_from_the_target_and_can_be_set(y, task, kind):
    assert as_targets(y, "y", task).dtype.kind == kind


@pytest.mark.parametrize(
    ("y", "task", "message"),
    [
        ([0.5, 1.5], None, "one integer label per sample .* set task='regression'"),
        (NUMBERS, "binary", "one integer label per sample"),
        ([*NUMBERS, np.nan], None, "1 of 61 values that are not finite"),
        (NUMBERS + 1e7, None, "subtract its mean"),
        (np.full(3, 1e300), "regression", "not finite"),
        (["a", "b"], "regression", "y must be one number per sample"),
        ([0, 1, 2], "binary", "binary needs two classes, and there are 3"),
        ([0, 1], "other", "task must be regression, binary or multiclass"),
    ],
)
def test_targets_that_do_not_fit_are_one_line(y, task, message):
    with pytest.raises(UnskewError, match=message):
        us.Federation.from_arrays(np.zeros((len(y), 1)), y, task=task)


def regression(**options):
    x = np.arange(60, dtype=np.float32)[:, None]
    return us.Federation.from_arrays(x, NUMBERS, np.arange(60) % 3, **options)


def test_a_regression_is_saved_opened_hashed_and_held_out(tmp_path):
    federation = regression(holdout=0.25, common=(np.ones((2, 1)), [0.5, 1.0]))
    opened = us.Federation.open(federation.save(tmp_path))
    assert (opened.task, opened.classes, opened.is_regression) == ("regression", 1, True)
    assert opened.fingerprint == federation.fingerprint
    assert opened.test.samples == 15
    np.testing.assert_array_equal(opened.train.y, federation.train.y)
    x, y = opened.train.client(1)
    np.testing.assert_allclose(y, NUMBERS[x[:, 0].astype(int)], rtol=1e-6)
    changed = replace(federation, train=replace(federation.train, y=federation.train.y + 1))
    assert changed.fingerprint != federation.fingerprint
    assert repr(federation).endswith("regression)")
    shown = federation._repr_html_()
    assert "a number to predict" in shown
    assert "Samples per client and quantile bin of the target" in shown


def test_a_damaged_regression_is_refused(tmp_path):
    regression().save(tmp_path)
    np.save(tmp_path / "train_y.npy", np.full(60, np.nan, np.float32))
    with pytest.raises(UnskewError, match="train y has 60 of 60 values that are not finite"):
        us.Federation.open(tmp_path)


def test_a_regression_has_no_classes():
    with pytest.raises(UnskewError, match="classes: the target is a quantity"):
        regression(classes=3)


def test_a_column_of_fractions_is_a_regression_not_classes(tmp_path):
    """A float target does not become one class per distinct value."""
    path = tmp_path / "visits.csv"
    rows = [f"{i},{10 + 0.25 * i},{'ab'[i % 2]}" for i in range(40)]
    path.write_text("\n".join(["day,pressure,site", *rows]) + "\n")
    federation = us.Federation.from_table(path, label="pressure", client="site")
    assert federation.is_regression
    assert federation.train.y[:2].tolist() == [10.0, 10.5]
    days = us.Federation.from_table(path, label="day", client="site")
    assert (days.task, days.classes) == ("multiclass", 40)
    days = us.Federation.from_table(path, label="day", client="site", task="regression")
    assert days.task == "regression"
    classes = us.Federation.from_table(path, label="pressure", client="site", task="multiclass")
    assert classes.classes == 40


def test_a_row_without_a_target_is_named():
    rows = [{"x": i, "days": "" if i == 4 else f"{i}.5"} for i in range(30)]
    with pytest.raises(UnskewError, match=r"the label column 'days' .* row 5 .* remove rows witho"):
        us.Federation.from_table(rows, label="days", task="regression")


def test_a_torch_dataset_may_hold_numbers():
    pairs = [(np.zeros(2), float(value)) for value in NUMBERS]
    assert us.Federation.from_dataset(pairs).is_regression


def test_bins_hold_equally_many_targets():
    assert np.bincount(in_bins(NUMBERS)).tolist() == [6] * 10
    assert in_bins(np.ones(5)).tolist() == [9] * 5


def test_center_and_scale_are_those_of_all_targets():
    parts = [NUMBERS[:7], NUMBERS[7:50], NUMBERS[50:]]
    sums = [target_sums(part) for part in parts]
    center, scale = center_and_scale([len(part) for part in parts], sums)
    assert center == pytest.approx(NUMBERS.mean())
    assert scale == pytest.approx(NUMBERS.std())
    assert center_and_scale([3], [target_sums(np.full(3, 5.0))]) == (5.0, 1.0)
    assert regression().target_center_and_scale == pytest.approx((1, NUMBERS.std()))


def numeric_source():
    digits = source("digits")
    y_train, y_test = (y + np.linspace(0, 1, len(y)) for y in (digits.y_train, digits.y_test))
    y_train, y_test = y_train.astype(np.float32), y_test.astype(np.float32)
    return replace(digits, y_train=y_train, y_test=y_test, class_names=())


def test_partitioners_use_quantile_bins_of_the_target(tmp_path):
    data: Source = numeric_source()
    skewed = federate(data, "dirichlet:alpha=0.1", 5)
    even = federate(data, "iid", 5)
    assert skewed.is_regression
    assert even.is_regression
    assert us.diagnose(skewed).label_skew > 3 * us.diagnose(even).label_skew
    assert any("quantile bins of the target" in note for note in skewed.report.notes)
    assert us.Federation.open(skewed.save(tmp_path)).report.label_counts.shape == (5, 10)
    assert len(federate(data, "quantity", 5)) == 5


@pytest.mark.extras("pandas")
def test_floats_of_a_frame_are_numbers_even_if_they_are_whole():
    import pandas

    frame = pandas.DataFrame({"a": np.arange(60.0), "y": np.arange(60.0) + 150, "k": [0, 1] * 30})
    assert us.Federation.from_table(frame, label="y", client="k").is_regression
    three = frame.assign(y=frame.y % 3)
    assert us.Federation.from_table(three, label="y", client="k").classes == 3


def test_texts_with_numbers_to_predict_may_have_a_small_common_test():
    texts = [f"word{i % 7} word{i % 3}" for i in range(60)]
    y = np.linspace(0, 1, 60)
    federation = us.Federation.from_arrays(texts, y, [0, 1] * 30, common=(texts[:5], y[:5]))
    assert federation.is_regression
    assert federation.common.samples == 5
