"""Federations of raw tables and of texts."""

import numpy as np
import pytest

from hospitals import hospital_rows, write_csv, write_hospitals
from unskew import Federation, UnskewError

ROLES = {"label": "outcome", "client": "hospital"}


@pytest.fixture(scope="module")
def visits(tmp_path_factory):
    return write_hospitals(tmp_path_factory.mktemp("visits"))


def steps(federation):
    return {step.name: step for step in federation.preprocessing.transform.columns}


def test_a_raw_table_becomes_features(visits):
    federation = Federation.from_table(visits, **ROLES, holdout=0.25)
    assert federation.name == "visits"
    assert federation.class_names == ("died", "left")
    assert federation.preprocessing.transform.feature_names == [
        "age", "age is missing", "income", "income is missing", "pressure", "pressure is missing",
        "ward=eyes", "ward=heart", "ward=surgery", "ward=(other)", "ward is missing", "smokes",
        "smokes is missing", "admitted", "admitted is missing",
    ]  # fmt: skip
    x = federation.train.x
    assert x.dtype == np.float32
    assert x.shape[1] == 15
    assert [steps(federation)[name].kind for name in ("age", "ward", "smokes", "admitted")] == [
        "number", "category", "boolean", "date",
    ]  # fmt: skip
    present = x[:, 1] == 0
    assert x[present, 0].mean() == pytest.approx(0, abs=1e-5)
    assert x[present, 0].std() == pytest.approx(1, abs=1e-5)
    assert np.all(x[~present, 0] == 0)


def test_federated_is_pooled_to_nine_digits_and_splits_stay_the_same(visits):
    federated, pooled = (
        Federation.from_table(visits, **ROLES, holdout=0.25, prepare=prepare)
        for prepare in ("federated", "pooled")
    )
    for name, step in steps(federated).items():
        other = steps(pooled)[name]
        assert step.center == pytest.approx(other.center, rel=1e-9)
        assert step.scale == pytest.approx(other.scale, rel=1e-9)
        assert step.levels == other.levels
    numbers = Federation.from_table(
        write_csv(visits.with_name("ages.csv"), [
            {"age": row["age"] or "0", "hospital": row["hospital"], "outcome": row["outcome"]}
            for row in hospital_rows()
        ]), **ROLES, holdout=0.25, prepare="none",
    )  # fmt: skip
    assert numbers.train.y.tolist() == federated.train.y.tolist()
    assert numbers.test.sizes.tolist() == federated.test.sizes.tolist()


def test_statistics_are_those_of_training_samples(visits):
    options = {**ROLES, "features": ["age"], "holdout": 0.25}
    federation = Federation.from_table(visits, **options)
    rows = Federation.from_table(visits, **options, seed=1)
    assert steps(federation)["age"].center != steps(rows)["age"].center
    changed = hospital_rows()
    split = Federation.from_arrays(
        np.arange(len(changed)), [0] * len(changed), [r["hospital"] for r in changed], holdout=0.25
    )
    for row in split.test.x.astype(int):
        changed[row]["age"] = "1000"
    after = Federation.from_table(write_csv(visits.with_name("changed.csv"), changed), **options)
    assert after.preprocessing.transform == federation.preprocessing.transform
    assert after.test.x.max() > 50


def test_local_preprocessing_scales_every_client_by_itself(visits):
    federation = Federation.from_table(visits, **ROLES, prepare="local")
    for client in range(len(federation)):
        x, _ = federation.train.client(client)
        known = x[x[:, 1] == 0, 0]
        assert known.mean() == pytest.approx(0, abs=1e-5)
        assert known.std() == pytest.approx(1, abs=1e-5)


@pytest.mark.extras("pandas")
def test_a_frame_and_rows_are_read_like_the_file(visits):
    import pandas as pd

    from_file = Federation.from_table(visits, **ROLES)
    texts = pd.read_csv(visits, dtype=str)
    typed = pd.read_csv(visits, parse_dates=["admitted"])
    typed["ward"] = typed["ward"].astype("category")
    typed["smokes"] = typed["smokes"].map({"yes": True, "no": False}).astype("boolean")
    typed["age"] = typed["age"].astype("Int64")
    for table in (texts, typed, hospital_rows()):
        federation = Federation.from_table(table, **ROLES)
        assert federation.train.x == pytest.approx(from_file.train.x, abs=1e-5)
        assert federation.train.y.tolist() == from_file.train.y.tolist()
        assert federation.name == "table"


@pytest.mark.extras("pyarrow")
def test_parquet_with_gaps_and_dates(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    seen = pa.array([0, 86_400, None, 172_800], pa.timestamp("s"))
    table = {"n": [1, None, 3, 4], "c": ["a", None, "b", "a"], "b": [True, None, False, True]}
    parquet.write_table(pa.table({**table, "seen": seen, "y": [0, 1, 0, 1]}), tmp_path / "a.pq")
    federation = Federation.from_table(tmp_path / "a.pq", label="y")
    kinds = {name: step.kind for name, step in steps(federation).items()}
    assert kinds == {"n": "number", "c": "category", "b": "boolean", "seen": "date"}
    assert steps(federation)["seen"].center == 1


def test_a_common_test_table_is_prepared_like_the_others(visits):
    tests = hospital_rows(seed=1)[:50]
    federation = Federation.from_table(visits, **ROLES, common=tests)
    assert federation.common.samples == 50
    assert federation.common.y.tolist() == [int(row["outcome"] == "left") for row in tests]
    with pytest.raises(UnskewError, match="common: no training row has the label 'cured'"):
        Federation.from_table(visits, **ROLES, common=[{**tests[0], "outcome": "cured"}])
    with pytest.raises(UnskewError, match="common: with prepare=local"):
        Federation.from_table(visits, **ROLES, common=tests, prepare="local")


def test_a_prepared_federation_is_saved_with_its_preprocessing(visits, tmp_path):
    federation = Federation.from_table(visits, **ROLES)
    federation.save(tmp_path / "saved")
    opened = Federation.open(tmp_path / "saved")
    assert opened.preprocessing.to_json() == federation.preprocessing.to_json()


def test_all_misspelt_columns_and_all_odd_cells_are_named_at_once(tmp_path):
    rows = hospital_rows(40, blank=0)
    path = write_csv(tmp_path / "visits.csv", rows)
    with pytest.raises(UnskewError, match=r"'agee' \(did you mean 'age'\?\), 'presure' \(did"):
        Federation.from_table(path, **ROLES, features=["agee", "presure"])
    rows[3] |= {"age": "old", "income": "inf"}
    path = write_csv(tmp_path / "visits.csv", rows)
    with pytest.raises(UnskewError, match=r"'age': 1 of \d+ .* at client \w+; column 'income'"):
        Federation.from_table(path, **ROLES)
    declared = {"age": "category", "income": "category"}
    assert steps(Federation.from_table(path, **ROLES, columns=declared))["age"].kind == "category"
    with pytest.raises(UnskewError, match="columns: 'sex' is not a feature column"):
        Federation.from_table(path, **ROLES, columns={"sex": "category"})
    with pytest.raises(UnskewError, match=r"'age' must hold numbers.*; column 'ward' must hold"):
        Federation.from_table(path, **ROLES, prepare="none")


def test_odd_cells_of_test_samples_are_named(tmp_path):
    rows = hospital_rows(40, blank=0)
    with pytest.raises(UnskewError, match=r"common: .*'age' \(number\): 1; 'smokes' \(boolean\)"):
        Federation.from_table(rows, **ROLES, common=[{**rows[0], "age": "x", "smokes": "maybe"}])


TEXTS = ["no fever today at all", "high fever and a bad cough", "a cough but no pain"] * 4
ILL = [0, 1, 1] * 4


def test_texts_become_tokens_of_a_vocabulary_of_training_texts():
    federation = Federation.from_arrays(TEXTS, ILL, [0, 1] * 6, holdout=0.5)
    assert federation.train.x.dtype == np.int32
    assert federation.vocabulary[:2] == ("<pad>", "<unk>")
    assert federation.preprocessing.sent.bytes_up > 0
    rare = Federation.from_arrays(
        np.array([*TEXTS, "never seen before"]), [*ILL, 1], common=(["seen zebra"], [0])
    )
    assert "zebra" not in rare.vocabulary
    assert rare.common.x[0, :3].tolist() == [rare.vocabulary.index("seen"), 1, 0]
    with pytest.raises(UnskewError, match="x must hold texts only"):
        Federation.from_arrays([*TEXTS, 3], [*ILL, 1])


def test_a_table_with_one_text_column_becomes_tokens(tmp_path):
    rows = [{"note": text, "ill": str(ill)} for text, ill in zip(TEXTS, ILL, strict=True)]
    federation = Federation.from_table(rows, label="ill")
    assert federation.vocabulary == Federation.from_arrays(TEXTS, ILL).vocabulary
    short = Federation.from_table(rows, label="ill", prepare="federated:words=5,length=3")
    assert (short.shape, len(short.vocabulary)) == ((3,), 5)
    both = [{**row, "age": "3"} for row in rows]
    with pytest.raises(UnskewError, match="'note' holds text, and a network takes one text column"):
        Federation.from_table(both, label="ill")
