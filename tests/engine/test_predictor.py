"""The final model predicts raw rows, in memory and after it was read from its folder."""

import json

import numpy as np
import pytest
from torch import nn

import unskew as us
from hospitals import hospital_rows, write_csv, write_hospitals
from marks import long_after
from toys import small_federation
from unskew.runs.read import read_run

ROLES = {"label": "outcome", "client": "hospital"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("visits")
    write_hospitals(folder)
    return folder


def train(folder, method="fedavg", prepare="federated", **options):
    federation = us.Federation.from_table(
        folder / "visits.csv", **ROLES, holdout=0.25, prepare=prepare
    )
    return federation, us.train(federation, method, rounds=10, progress=False, **options)


def test_raw_rows_in_memory_and_from_the_folder(folder):
    federation, run = train(folder, out=folder / "run")
    new = hospital_rows(seed=5)
    expected = run.predictor.predict(new)
    truth = np.array([row["outcome"] for row in new])
    assert np.mean(expected == truth) > 0.8
    loaded = read_run(folder / "run").predictor
    assert loaded.predict(write_csv(folder / "new.csv", new)).tolist() == expected.tolist()
    probabilities = loaded.predict_proba(new[0])
    assert probabilities.shape == (1, 2)
    assert probabilities.sum() == pytest.approx(1)
    unseen = {"ward": "roof", "extra": 1, "age": None, "smokes": True}
    assert loaded.predict({**new[0], **unseen})[0] in ("died", "left")
    # Rows of the training table have the features that the network was trained on.
    everything = loaded.features(folder / "visits.csv")
    assert {row.tobytes() for row in federation.train.x} <= {row.tobytes() for row in everything}


@pytest.mark.extras("pandas")
def test_a_frame_of_raw_rows(folder):
    import pandas as pd

    _, run = train(folder)
    frame = pd.read_csv(folder / "visits.csv")
    from_file = run.predictor.predict(folder / "visits.csv")
    assert run.predictor.predict(frame).tolist() == from_file.tolist()


def test_missing_columns_and_odd_cells_are_named(folder):
    _, run = train(folder)
    row = hospital_rows(1)[0]
    with pytest.raises(us.UnskewError, match="rows: has no columns 'age', 'ward'; it has"):
        run.predictor.predict([{n: c for n, c in row.items() if n not in ("age", "ward")}])
    with pytest.raises(us.UnskewError, match=r"rows: .*'age' \(number\): 1"):
        run.predictor.predict([{**row, "age": "old"}])


@pytest.mark.parametrize(
    "method", long_after(2, ["fedgn+scaffold", "ifca:models=2", "moon", "fedrod", "feddyn"])
)
def test_adapted_networks_are_rebuilt(folder, tmp_path, method):
    _, run = train(folder, method, out=tmp_path / "run")
    loaded = read_run(tmp_path / "run")
    rows = hospital_rows(30, seed=5)
    np.testing.assert_array_equal(
        loaded.predictor.predict_proba(rows, client="west"),
        run.predictor.predict_proba(rows, client="west"),
    )


def test_with_local_statistics_the_client_is_named(folder):
    _, run = train(folder, prepare="local")
    row = hospital_rows(1)[0]
    with pytest.raises(us.UnskewError, match="client: every client scales its numbers by itself"):
        run.predictor.predict(row)
    with pytest.raises(us.UnskewError, match="client: 'moon' is not one"):
        run.predictor.predict(row, client="moon")
    north, west = (run.predictor.features(row, client=name)[0, 0] for name in ("north", "west"))
    assert north != west


@pytest.mark.parametrize("method", ["fedavg", "moon", "feddyn"])
def test_a_regression_predicts_in_units_of_the_target(tmp_path, method):
    federation = us.Federation.from_table(
        hospital_rows(200, blank=0), label="income", client="hospital", features=["age", "ward"]
    )
    run = us.train(
        federation, method, rounds=5, lr=0.02, loss="huber", progress=False, out=tmp_path / "run"
    )
    rows = hospital_rows(200, seed=5)
    predicted = run.predictor.predict(rows)
    assert predicted.shape == (200,)
    center, scale = federation.target_center_and_scale
    assert center > 30_000
    assert np.abs(predicted - center).max() < 3 * scale
    loaded = read_run(tmp_path / "run").predictor
    assert loaded.predict(rows).tolist() == predicted.tolist()
    with pytest.raises(us.UnskewError, match="has no classes to predict"):
        loaded.predict_proba(rows)


@pytest.mark.parametrize("target", [{"center": 1.0}, {"center": 1.0, "scale": 0.0}, [1.0, 2.0]])
def test_changed_units_of_a_target_are_one_line(tmp_path, target):
    x = np.random.default_rng(0).random((60, 3))
    us.train(us.Federation.from_arrays(x, x.sum(1)), rounds=1, progress=False, out=tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "target": target}))
    with pytest.raises(us.UnskewError, match=r"^[^\n]*target[^\n]*$"):
        read_run(tmp_path / "run").predictor.predict(x)


def test_texts(tmp_path):
    texts, labels = ["all is well", "very ill indeed"] * 20, [0, 1] * 20
    federation = us.Federation.from_arrays(texts, labels, [0, 1, 1, 0] * 10)
    run = us.train(federation, rounds=6, lr=1.0, out=tmp_path / "run", progress=False)
    loaded = read_run(tmp_path / "run").predictor
    assert loaded.predict(["so ill", "is well"]).tolist() == [1, 0]
    assert loaded.predict("is well").tolist() == run.predictor.predict(["is well"]).tolist()


def test_runs_of_arrays_predict_arrays(tmp_path):
    federation = small_federation()
    run = us.train(federation, rounds=2, model="mlp:hidden=8", out=tmp_path / "r", progress=False)
    x = federation.train.x[:7]
    expected = run.predictor.predict_proba(x)
    np.testing.assert_array_equal(read_run(tmp_path / "r").predictor.predict_proba(x), expected)
    with pytest.raises(us.UnskewError, match="rows: samples must have the shape"):
        run.predictor.predict(x[:, :2])


def test_custom_code_is_not_in_a_folder(tmp_path):
    federation = small_federation()
    network = nn.Linear(*federation.shape, federation.classes)
    run = us.train(federation, rounds=1, model=network, out=tmp_path / "run", progress=False)
    assert len(run.predictor.predict(federation.train.x)) == federation.train.samples
    with pytest.raises(us.UnskewError, match=r"predictor: .* your network or method"):
        _ = read_run(tmp_path / "run").predictor


def test_a_changed_folder_is_one_line(tmp_path):
    run = us.train(small_federation(), rounds=1, out=tmp_path / "run", progress=False)
    path = run.folder / "run.json"
    metadata = json.loads(path.read_text())
    for change in ({"inputs": {"shape": [10**12]}}, {"inputs": 3}, {"preprocessing": {"spec": 1}}):
        path.write_text(json.dumps({**metadata, **change}))
        with pytest.raises(us.UnskewError) as error:
            _ = read_run(run.folder).predictor
        assert "\n" not in str(error.value)


def test_the_preprocessing_counts_in_the_first_round(folder):
    federation, run = train(folder)
    sent = federation.preprocessing.sent
    first, second = run.metrics[0]["traffic"], run.metrics[1]["traffic"]
    for name, number in vars(sent).items():
        assert first[name] - second[name] == number > 0
    assert run.metrics[0]["preprocessing"] == vars(sent)
    assert run.cost.bytes_up == 10 * second["bytes_up"] + sent.bytes_up


def test_a_run_that_was_read_knows_categories_with_unprintable_characters(tmp_path):
    wards = ("eyes", "heart\u200f", "lung\x0b2")
    rows = [
        {"age": i % 9, "ward": wards[i % 3], "ill": "ny"[i % 3 == 1], "site": "ns"[i % 2]}
        for i in range(60)
    ]
    federation = us.Federation.from_table(rows, label="ill", client="site", holdout=0.2)
    run = us.train(federation, rounds=5, lr=0.5, out=tmp_path / "run")
    new = [{"age": 4, "ward": ward} for ward in wards]
    expected = run.predictor.predict_proba(new)
    assert len(np.unique(expected)) == expected.size
    np.testing.assert_array_equal(read_run(tmp_path / "run").predictor.predict_proba(new), expected)
