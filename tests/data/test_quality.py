"""The check of data before training: what it finds, and what it leaves alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes

import unskew as us
from toys import federation_of
from unskew.data.columns import Columns
from unskew.data.quality.check import check
from unskew.data.quality.duplicates import row_hashes
from unskew.data.quality.sampled import SampledFeatures
from unskew.errors import DataWarning, UnskewError

X, Y = load_breast_cancer(return_X_y=True)
SITE = np.arange(len(Y)) % 3
SCALED = ((X - X.mean(0)) / X.std(0)).astype(np.float32)


def cells(x=SCALED, y=Y, client=SITE, **options):
    return us.Federation.from_arrays(x, y, client, **{"holdout": 0.2, **options})


def found(federation, severity=None):
    """The subjects of the findings, or of those of a severity."""
    return [
        finding.subject for finding in check(federation) if severity in (None, finding.severity)
    ]


def only(federation):
    (finding,) = check(federation)
    return finding


def test_nothing_is_found_where_nothing_is_wrong():
    found = check(cells())
    assert list(found) == []
    assert found.ok
    assert bool(found) is True
    assert str(found) == "custom: nothing found"
    assert "nothing found" in found._repr_html_()
    assert found.to_notes() == {}


def test_nan_and_infinite_values_are_counted_by_column_and_client():
    broken = SCALED.copy()
    broken[3, 1] = broken[4, 1] = np.nan  # clients 0 and 1
    broken[7, 4] = np.inf  # client 1
    message = (
        "train x: has values that are not finite numbers (2 NaN and 1 infinite of 17,070): column "
        "1 (2) and column 4 (1); client 'east' (2) and client 'north' (1); replace them or remove "
        "their samples"
    )
    sites = np.array(["north", "east", "west"])[SITE]
    with pytest.raises(UnskewError) as error:
        cells(broken, client=sites)
    assert str(error.value) == message
    # A federation that was put together by hand is refused when it is to be trained.
    clean = cells(client=sites, holdout=0)
    train = Columns.grouped(broken, Y, clean_owners(sites), 3)
    by_hand = replace(clean, train=train)
    finding = check(by_hand).errors[0]
    assert str(finding) == message
    assert not check(by_hand)
    with pytest.raises(UnskewError, match="custom: train x: has values"):
        us.compare(by_hand, "fedavg,mean", seeds=1, rounds=1)
    with pytest.raises(UnskewError, match="custom: train x: has values"):
        us.train(by_hand, rounds=1)


def clean_owners(names):
    return np.unique(names, return_inverse=True)[1]


def test_a_finite_sum_that_overflows_is_no_error():
    x = np.full((40, 2), 3e38, np.float32)
    x[::2] = 1
    assert us.Federation.from_arrays(x, np.arange(40) % 2).train.samples == 40


def test_a_number_taken_for_classes_is_an_error(tmp_path):
    x, y = load_diabetes(return_X_y=True)
    table = np.column_stack([x, y + 0.25, np.arange(len(y)) % 4])
    path = tmp_path / "sugar.csv"
    header = ",".join([*(f"f{i}" for i in range(10)), "target", "site"])
    np.savetxt(path, table, delimiter=",", header=header, comments="", fmt="%.6g")
    federation = us.Federation.from_table(
        path, label="target", client="site", holdout=0.2, task="multiclass"
    )
    finding = check(federation).errors[0]
    assert finding.subject == "target"
    assert "classes for 354 training samples, with names such as '100.25'" in finding.text
    with pytest.raises(UnskewError, match="sugar: target: has") as error:
        us.compare(federation, "fedavg,mean", rounds=1)
    assert "\n" not in str(error.value)
    # Whole numbers may be classes, so they are only doubtful.
    whole = us.Federation.from_arrays(x, y.astype(int), np.arange(len(y)) % 4)
    assert "target" in found(whole, "warning")
    # A score has many samples per value, but most of its values do not occur.
    scores = 300 + 7 * np.arange(len(y)) % 203
    scored = us.Federation.from_arrays(x, scores, np.arange(len(y)) % 4, holdout=0.2)
    assert found(scored, "warning") == ["target"]


@pytest.mark.parametrize("classes", [10, 21])
def test_classes_with_enough_samples_are_classes(classes):
    labels = np.arange(400) % classes
    x = np.random.default_rng(0).normal(size=(400, 3))
    assert found(cells(x, labels, np.arange(400) // 100)) == []


def test_columns_on_unlike_scales_are_found_and_named(tmp_path):
    warning = only(cells(X))
    assert (warning.severity, warning.subject) == ("warning", "columns")
    assert "column 23 spans 4.07e+03" in warning.text
    path = tmp_path / "visits.csv"
    rows = "".join(f"{20 + i},{i % 2},{1000 * i},{'ab'[i % 2]}\n" for i in range(40))
    path.write_text("age,ill,income,site\n" + rows)
    federation = us.Federation.from_table(path, label="ill", client="site", prepare="none")
    texts = [finding.text for finding in check(federation).warnings]
    assert "are on unlike scales: column 'income' spans 3.9e+04, column 'age' spans 39" in texts


def test_large_values_are_found_even_if_they_are_alike():
    images = np.random.default_rng(0).random((60, 1, 8, 8)) * 255
    warning = only(cells(images, Y[:60], SITE[:60]))
    assert warning.text == "has values up to 255"
    assert found(cells(images.astype(np.uint8), Y[:60], SITE[:60])) == []
    warning = only(cells(SCALED[:, :4] * [1, 1, -20, 1]))
    assert (warning.subject, warning.text) == ("column 2", "has values up to 79.5")


def test_constant_columns_are_a_note():
    x = SCALED.copy()
    x[:, 5] = 3
    note = only(cells(x))
    assert (note.severity, note.subject) == ("note", "column 5")


@pytest.mark.parametrize(
    ("factor", "shift"), [(2.2046, 0), (0.01, 0), (1 / 18, 0), (1.8, 32), (1000, 0)]
)
def test_a_client_with_other_units_is_found(factor, shift):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 4))
    client = np.arange(400) % 8
    x[:, 2] = rng.normal(80, 10, 400)
    assert not [s for s in found(cells(x, Y[:400], client)) if "client" in s]
    x[client == 5, 2] = x[client == 5, 2] * factor + shift
    subjects = [s for s in found(cells(x, Y[:400], client), "warning") if "client" in s]
    assert subjects == ["client 5"]
    text = next(f.text for f in check(cells(x, Y[:400], client)) if f.subject == "client 5")
    assert "column 2 is mostly" in text


def test_two_clients_and_scaled_values_are_compared_too():
    x = SCALED[:, :4].copy()
    x[SITE == 1] *= 30
    subjects = found(cells(x), "warning")
    assert "client 1" in subjects
    apart = np.concatenate([np.random.default_rng(0).normal(size=(50, 2)) + k for k in (0, 100)])
    subjects = found(cells(apart, np.arange(100) % 2, np.arange(100) // 50), "warning")
    assert subjects[-2:] == ["client 0", "client 1"]


@given(st.integers(0, 10_000))
def test_clients_that_differ_by_chance_are_not_on_another_scale(seed):
    rng = np.random.default_rng(seed)
    x = np.column_stack([
        rng.normal(rng.normal(), 1, 300),
        rng.random(300) < 0.03,  # a rare category
        rng.exponential(size=300),
        rng.standard_t(2, 300),  # heavy tails
    ])  # fmt: skip
    clients = np.sort(rng.integers(0, 12, 300))
    federation = us.Federation.from_arrays(x, np.arange(300) % 2, clients)
    assert not [s for s in found(federation) if s.startswith("client ")]


def test_one_client_asks_for_the_column_of_clients():
    warning = only(cells(client=None))
    assert warning.fix == "did you forget --client-column (client= in Python)?"
    assert warning.severity == "warning"


def test_an_id_in_place_of_the_client_is_found():
    federation = us.Federation.from_arrays(
        SCALED, Y, np.arange(len(Y)), common=(SCALED[:5] + 1, Y[:5])
    )
    texts = [finding.text for finding in check(federation).warnings]
    assert "most of the 569 clients have one training sample" in texts


def test_clients_without_samples_tests_or_with_one_class_are_named():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(4, 30, 3)), np.arange(30) % 3
    nothing = (np.empty((0, 3)), [])
    federation = federation_of(
        (x[0], y), (x[1], y * 0), nothing,
        test=[(x[2], y), nothing, nothing], common=(x[3], y),
    )  # fmt: skip
    texts = {finding.text for finding in check(federation).warnings}
    assert texts == {
        "1 client without training samples: client 2",
        "1 of 3 clients hold samples of a single class: client 1",
        "2 of 3 clients have no test samples: client 1 and client 2",
    }


def test_data_without_any_test_samples_is_doubtful():
    assert only(cells(holdout=0)).text == "there are no test samples, so nothing can be evaluated"


def test_a_federation_without_training_samples_is_an_error():
    nothing = (np.empty((0, 3)), [])
    (error,) = check(federation_of(nothing, nothing)).errors
    assert error.text == "no client has a sample to train on"


def test_empty_classes_are_found():
    warning = only(cells(y=Y + 1))
    assert warning.text == "class 0 has no training samples"
    test = (SCALED[:10] + 1, np.full(10, 4))
    (warning,) = (f for f in check(cells(classes=5, common=test)) if f.subject == "classes")
    assert (
        warning.text == "class 2, class 3 and class 4 have no training samples, but 10 test samples"
    )


def test_channels_last_images_are_found():
    images = np.random.default_rng(0).integers(0, 256, (60, 16, 16, 3), np.uint8)
    warning = only(cells(images, Y[:60], SITE[:60]))
    assert "(16, 16, 3)" in warning.text
    assert found(cells(images.transpose(0, 3, 1, 2), Y[:60], SITE[:60])) == []


@pytest.mark.parametrize(("scale", "mean"), [(1, "0.97"), (255, "248")])
def test_nearly_white_images_are_found(scale, mean):
    ink = (np.random.default_rng(0).random((60, 1, 16, 16)) < 0.03) * scale
    dtype = np.float32 if scale == 1 else np.uint8
    warning = only(cells((scale - ink).astype(dtype), Y[:60], SITE[:60]))
    assert warning.text.startswith(f"has pixels of {mean}")
    assert warning.fix.startswith(f"invert the images ({scale} - x)")
    assert found(cells(ink.astype(dtype), Y[:60], SITE[:60])) == []


def test_test_samples_among_the_training_samples_are_found():
    federation = cells(holdout=0, common=(SCALED[:50], Y[:50]))
    warning = only(federation)
    assert warning.subject == "common test"
    assert warning.text.startswith("50 of 50 samples have the same features as a training sample")
    twice = cells(np.tile(SCALED, (2, 1)), np.tile(Y, 2), np.tile(SITE, 2))
    assert found(twice) == []  # as often as among the training samples themselves
    copy = cells(holdout=0, common=(np.concatenate([SCALED[:1], SCALED[1:400] + 1]), Y[:400]))
    assert only(copy).severity == "note"


def test_features_with_few_values_are_no_duplicates():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (500, 3))
    assert found(cells(x, rng.integers(0, 2, 500), np.arange(500) // 100)) == []


@given(st.integers(1, 70), st.sampled_from([np.uint8, np.float32, np.int32]))
def test_hashes_are_equal_for_equal_rows_only(width, dtype):
    rng = np.random.default_rng(width)
    x = rng.integers(0, 2, (200, width)).astype(dtype)
    hashes = row_hashes(x)
    distinct = len(np.unique(x, axis=0))
    assert len(np.unique(hashes)) == distinct
    assert np.array_equal(row_hashes(x[::-1])[::-1], hashes)


def test_a_partition_on_purpose_is_a_note():
    federation = us.load("digits", "pathological:classes_per_client=1", 10)
    assert found(federation, "warning") == []
    assert found(us.load("digits", clients=1), "warning") == []


@pytest.mark.parametrize("max_values", [1, 7, 100, 10_000])
def test_samples_are_spread_evenly_over_clients(max_values):
    sizes = (40, 0, 5, 13)
    x = np.arange(sum(sizes), dtype=np.float32)[:, None] * [1, 10]
    owner = np.repeat(np.arange(4), sizes)
    columns = Columns.grouped(x, owner * 0, owner, 4)
    sample = SampledFeatures.of(columns, max_values)
    assert set(sample.clients) <= {0, 2, 3}
    for index, client in enumerate(sample.clients):
        own = sample.client(index)
        assert len(own)
        assert set(own[:, 0]) <= set(columns.client(client)[0][:, 0])
    if max_values >= 2 * sum(sizes):
        assert np.array_equal(sample.values, x)
        means, deviations = sample.moments()
        expected = [columns.client(k)[0].mean(0) for k in (0, 2, 3)]
        assert np.allclose(means, expected)
        assert np.allclose(deviations, [columns.client(k)[0].std(0) for k in (0, 2, 3)])
    else:
        assert sample.values.size <= max(2 * max_values, 2)


def test_training_warns_and_records_what_was_found():
    federation = cells(X[:, :5], holdout=0.3)
    with pytest.warns(DataWarning, match="custom: columns: are on unlike scales") as caught:
        runs = us.compare(federation, "fedavg,mean", seeds=2, rounds=1, lr=1e-6)
    assert len(caught) == 1
    assert all(run.metadata["findings"][0]["subject"] == "columns" for run in runs)
    with pytest.warns(DataWarning):
        run = us.train(federation, rounds=1, lr=1e-6, notes={"of": "the user"})
    assert run.metadata["of"] == "the user"
    assert run.metadata["findings"] == runs[0].metadata["findings"]


def test_a_warning_is_shown_for_the_first_seed_that_has_it():
    def of_seed(seed):
        return cells(X, holdout=0.2, seed=seed)

    with pytest.warns(DataWarning) as caught:
        us.compare(of_seed, "fedavg", seeds=3, rounds=1, lr=1e-6)
    assert len(caught) == 1


def test_the_value_prints_errors_first_and_is_escaped():
    federation = cells(X, client=np.array(["<b>", "b", "c"])[SITE])
    x = federation.train.x.copy()
    x[0, 0] = np.nan
    checked = check(replace(federation, train=replace(federation.train, x=x)))
    assert not checked.ok
    lines = str(checked).splitlines()
    assert lines[0] == "custom: 1 error"
    assert lines[1].startswith("error: train x: has values that are not finite")
    assert lines[2] == "  replace them or remove their samples"
    page = checked._repr_html_()
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert checked.to_dict()["ok"] is False
