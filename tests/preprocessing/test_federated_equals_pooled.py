"""Statistics that clients send separately are those of all samples in one place."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from unskew.data.preprocessing.cells import Column
from unskew.data.preprocessing.declared import Declared
from unskew.data.preprocessing.fitted import Preprocessing, encode, prepare_clients
from unskew.data.preprocessing.moments import Moments
from unskew.data.preprocessing.protocol import summarise_columns
from unskew.data.preprocessing.sketch import QuantileSketch
from unskew.data.preprocessing.spec import parse_prepare
from unskew.data.preprocessing.transform import Transform
from unskew.errors import UnskewError

numbers = st.floats(-1e9, 1e9, allow_subnormal=False)
clients_of_numbers = st.lists(st.lists(numbers, max_size=30), min_size=1, max_size=5).filter(any)


def prepared(clients, prepare="federated", declared=None, **options):
    columns = [{name: Column.of(np.array(c)) for name, c in each.items()} for each in clients]
    chosen = parse_prepare(prepare)
    return prepare_clients(columns, chosen, declared or {}, where="visits.csv", **options)


@given(clients_of_numbers)
def test_merged_moments_are_those_of_all_values(clients):
    merged = Moments.merged([Moments.of(np.array(values)) for values in clients])
    together = np.concatenate([np.array(values) for values in clients])
    size = np.abs(together).max()
    assert merged.count == len(together)
    assert merged.mean == pytest.approx(together.mean(), abs=1e-9 * size + 1e-300)
    assert merged.std == pytest.approx(together.std(), rel=1e-9, abs=1e-12 * size)
    assert Moments.merged([Moments.of(np.array(v)) for v in clients[::-1]]) == merged


def test_moments_by_hand_and_far_from_zero():
    merged = Moments.merged([Moments.of(np.array([1.0, 3])), Moments.of(np.array([8.0]))])
    assert (merged.count, merged.mean, merged.squares) == (3, 4, 26)
    far = [np.array([1e9 + 0.1, 1e9 + 0.3]), np.array([1e9 + 0.5])]
    assert Moments.merged([Moments.of(x) for x in far]).std == pytest.approx(0.1632993, rel=1e-6)
    assert Moments.of(np.full(3, 0.1)).scale == 1


@given(clients_of_numbers, st.integers(2, 10), st.floats(0.01, 1))
def test_quantiles_are_within_the_stated_rank_error(clients, size, share):
    sketches = [QuantileSketch.of(np.array(values), size) for values in clients]
    merged = QuantileSketch.merged(sketches)
    together = np.concatenate([np.array(values) for values in clients])
    found = merged.quantile(share)
    assert merged.count == len(together)
    assert merged.rank_error <= sum(-(-len(values) // size) // 2 for values in clients)
    assert (together < found).sum() <= share * len(together) + merged.rank_error
    assert (together <= found).sum() >= share * len(together) - merged.rank_error
    backwards = QuantileSketch.merged(sketches[::-1])
    assert backwards.values.tolist() == merged.values.tolist()
    assert backwards.weights.tolist() == merged.weights.tolist()


def test_a_sketch_by_hand():
    sketch = QuantileSketch.of(np.arange(10.0), 3)
    assert sketch.values.tolist() == [1, 4, 8]
    assert sketch.weights.tolist() == [3, 3, 4]
    assert sketch.rank_error == 2
    assert QuantileSketch.of(np.array([3.0, 1]), 3).quantile(0.5) == 1


cells = st.one_of(st.none(), st.sampled_from(["a", "b", "c", "d"]))
rows = st.lists(st.tuples(st.one_of(st.none(), numbers), cells), max_size=20)


@given(st.lists(rows, min_size=1, max_size=4).filter(any))
def test_the_fitted_transformation_is_the_pooled_one(clients):
    split = [
        {
            "x": np.array([np.nan if x is None else x for x, _ in each], float),
            "c": np.array(["" if c is None else c for _, c in each], str),
        }
        for each in clients
    ]
    if all(cell is None for each in clients for row in each for cell in row):
        with pytest.raises(UnskewError, match="no feature column has a value"):
            prepared(split)
        return
    moments = [Moments.of(each["x"][~np.isnan(each["x"])]) for each in split]
    assume(Moments.bounded(moments) == moments)  # otherwise, one client is unlike all others
    federated, pooled = prepared(split).transform, prepared(split, "pooled").transform
    for ours, theirs in zip(federated.columns, pooled.columns, strict=True):
        tolerance = 1e-9 * max(1, abs(theirs.center))
        assert ours.center == pytest.approx(theirs.center, rel=1e-9, abs=tolerance)
        assert ours.scale == pytest.approx(theirs.scale, rel=1e-9, abs=tolerance)
        assert ours.model_copy(update={"center": 0.0, "scale": 1.0}) == theirs.model_copy(
            update={"center": 0.0, "scale": 1.0}
        )
    again = prepared(split[::-1]).transform
    assert encode(again.to_json()) == encode(federated.to_json())


VISITS = (
    {"age": ["20", "40", ""], "ward": ["A", "B", "A"], "smokes": ["yes", "no", ""]},
    {"age": ["60"], "ward": ["C"], "smokes": ["no"]},
)


def apply(transform, columns):
    return transform.apply({name: Column.of(np.array(c)) for name, c in columns.items()}).tolist()


def test_features_by_hand():
    transform = prepared(VISITS).transform
    assert transform.feature_names == [
        "age", "age is missing", "ward=A", "ward=B", "ward=C", "ward=(other)", "smokes",
        "smokes is missing",
    ]  # fmt: skip
    step = np.sqrt(800 / 3)
    raw = {"age": ["40", "", str(40 + step)], "ward": ["C", "", "Z"], "smokes": ["n", "", "true"]}
    found = np.array(apply(transform, raw))
    assert found == pytest.approx(np.array([
        [0, 0, 0, 0, 1, 0, -1, 0],
        [0, 1, 0, 0, 0, 0, 0, 1],
        [1, 0, 0, 0, 0, 1, 1, 0],
    ]), abs=1e-6)  # fmt: skip


def test_rare_categories_share_a_feature_and_hashed_ones_need_no_list():
    most = prepared(VISITS, "federated:max_categories=1").transform
    assert most.columns[1].levels == ("A",)
    hashed = prepared(VISITS, "federated:categories=hashed,buckets=4")
    assert hashed.transform.columns[1].buckets == 4
    ward = np.array(apply(hashed.transform, VISITS[0]))[:, 2:6]
    assert ward.sum(1).tolist() == [1, 1, 1]
    assert ward[0].tolist() == ward[2].tolist()


def test_robust_scaling_uses_median_and_quartiles():
    values = np.arange(101.0)
    values[100] = 1e6
    transform = prepared([{"x": values[::2]}, {"x": values[1::2]}], "federated:scale=robust")
    (step,) = transform.transform.columns
    assert (step.center, step.scale) == (50, 50)


def test_local_statistics_stay_with_the_client():
    preprocessing = prepared(VISITS, "local")
    assert [own.columns[0].center for own in preprocessing.own] == [30, 60]
    assert preprocessing.transform.columns[0].center == 0
    assert preprocessing.transform.columns[1].levels == ("A", "B", "C")


def test_what_is_sent_is_counted():
    sent, pooled = prepared(VISITS).sent, prepared(VISITS, "pooled").sent
    assert sent.bytes_up > sent.parameters_up > 0
    assert sent.parameters_down > 0
    assert vars(pooled) == dict.fromkeys(vars(pooled), 0)
    assert prepared(VISITS, "local").sent.parameters_up < sent.parameters_up


def test_all_columns_with_problems_are_listed_at_once():
    ages = [str(i) for i in range(30)]
    bad = {"age": [*ages, "old"], "pulse": [*ages, "inf"], "ward": ["A"] * 31}
    with pytest.raises(UnskewError, match=r"column 'age': 1 of 31 .*; column 'pulse': 1 of 31"):
        prepared([bad])


def test_a_transformation_survives_json_and_refuses_other_rows():
    preprocessing = prepared(VISITS, "local")
    again = Preprocessing.from_json(preprocessing.to_json())
    assert again.own == preprocessing.own
    assert again.transform == preprocessing.transform
    with pytest.raises(UnskewError, match="has no column 'smokes'"):
        apply(again.transform, {"age": ["1"], "ward": ["A"]})
    with pytest.raises(UnskewError, match=r"'age' \(number\): 1; 'smokes' \(boolean\): 1"):
        apply(again.transform, {"age": ["x"], "ward": ["A"], "smokes": ["perhaps"]})


@pytest.mark.parametrize(
    "change",
    [
        {"columns": []},
        {"columns": [{"name": "a", "kind": "number", "scale": 0.0}]},
        {"columns": [{"name": "a", "kind": "category"}]},
        {"columns": [{"name": "a", "kind": "text", "words": ["x"], "length": 3}]},
        {"columns": [{"name": "a", "kind": "number"}] * 2},
        {"columns": [{"name": "a", "kind": "number", "center": float("nan")}]},
        [],
    ],
)
def test_a_damaged_transformation_is_one_line(change):
    with pytest.raises(UnskewError, match="transform") as error:
        Transform.from_json(change)
    assert "\n" not in str(error.value)


def test_texts_get_a_vocabulary_of_the_most_frequent_words():
    notes = [{"note": ["the cough is the worst", "cough and the fever"]},
             {"note": ["no fever and no more cough"]}]  # fmt: skip
    transform = prepared(notes, "federated:words=5,length=4").transform
    assert transform.vocabulary == ("<pad>", "<unk>", "the", "and", "cough")
    assert apply(transform, {"note": ["the unseen cough", ""]}) == [[2, 1, 4, 0], [0] * 4]
    assert prepared(notes, "pooled:words=5,length=4").transform == transform


def test_text_beside_other_columns_is_refused():
    with pytest.raises(UnskewError, match="one text column or other columns, not both"):
        prepared([{"age": ["1"], "note": ["a note of five words"]}])


def test_values_that_too_few_rows_hold_do_not_leave_a_client():
    schema = {"ward": Declared("category"), "note": Declared("text")}
    columns = {
        "ward": Column.of(np.array(["A", "A", "B", "", "C"])),
        "note": Column.of(np.array(["pain pain", "a cough", "a rash", "", "a"])),
    }
    sent = summarise_columns(columns, schema, parse_prepare("federated:min_cell=2"))
    assert sent == {
        "ward": {"missing": 1, "counts": {"A": 2}, "rare": 2},
        "note": {"counts": {"a": 3}, "rare": 4},
    }
    everything = summarise_columns(columns, schema, parse_prepare("federated"))
    assert everything["ward"] == {"missing": 1, "counts": {"A": 2, "B": 1, "C": 1}}
    assert everything["note"]["counts"] == {"a": 3, "cough": 1, "pain": 2, "rash": 1}
    numbers = {"age": Column.of(np.arange(11.0))}
    robust = parse_prepare("federated:scale=robust,min_cell=5")
    sketch = summarise_columns(numbers, {"age": Declared("number")}, robust)["age"]["sketch"]
    assert sketch == {"values": [2.0, 8.0], "weights": [5, 6]}
    shared = prepared(VISITS, "federated:min_cell=2").transform
    assert shared.columns[1].levels == ("A",)
    assert np.array(apply(shared, VISITS[0]))[:, 2:4].tolist() == [[1, 0], [0, 1], [1, 0]]


def test_a_simulation_takes_any_number_of_columns():
    steps = [{"name": f"gene{k}", "kind": "number"} for k in range(20_001)]
    assert len(Transform.from_json({"columns": steps}).names) == 20_001
