"""One client of seven that sends anything moves a column by less than the others' own spread."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.data.preprocessing.cells import Column
from unskew.data.preprocessing.declared import Declared
from unskew.data.preprocessing.message_checks import check_summary
from unskew.data.preprocessing.moments import Moments
from unskew.data.preprocessing.noise import NoisySums
from unskew.data.preprocessing.protocol import fit, summarise_columns
from unskew.data.preprocessing.spec import parse_prepare

NUMBER = {"x": Declared("number")}


def honest(clients=6, samples=50, seed=0):
    rng = np.random.default_rng(seed)
    return [Column.of(rng.normal(70 + 5 * k, 12, samples)) for k in range(clients)]


def summaries(columns, prepare, schema=NUMBER):
    return [summarise_columns({"x": each}, schema, prepare) for each in columns]


def step_of(messages, prepare, schema=NUMBER, samples=50):
    (step,) = fit(messages, schema, prepare, [samples] * len(messages)).columns
    return step


@pytest.mark.parametrize("scale", ["standard", "robust"])
@pytest.mark.parametrize(("mean", "squares"), [(1e100, 1e219), (-1e6, 0.0), (80.0, 1e200)])
def test_one_client_of_seven_moves_center_and_scale_by_less_than_the_spread(scale, mean, squares):
    prepare = parse_prepare(f"federated:scale={scale}")
    messages = summaries(honest(), prepare)
    before = step_of(messages, prepare)
    lie = {"missing": 0, "count": 50, "mean": mean, "squares": squares}
    if scale == "robust":
        lie["sketch"] = {"values": [mean], "weights": [50]}
    after = step_of([*messages, {"x": lie}], prepare)
    spread = np.concatenate([each.values for each in honest()]).std()
    assert abs(after.center - before.center) < spread
    assert abs(after.scale - before.scale) < spread


moments = st.builds(
    Moments,
    st.integers(1, 1000),
    st.floats(-1e100, 1e100, allow_subnormal=False),
    st.floats(0, 1e200, allow_subnormal=False),
)


@given(st.lists(moments, min_size=6, max_size=6), moments)
def test_any_client_is_bounded_by_the_spread_of_the_others(others, bad):
    bounded = Moments.bounded([*others, bad])
    means = [each.mean for each in others]
    low, high = min(means), max(means)
    widest = max(np.hypot(each.std, high - low) for each in others)
    if widest > 0:
        assert low - 2.0001 * widest <= bounded[-1].mean <= high + 2.0001 * widest
        assert bounded[-1].std <= 2.0001 * widest


def test_clients_that_are_alike_keep_their_bits_and_two_are_never_changed():
    parts = [Moments.of(each.values) for each in honest(7)]
    assert Moments.bounded(parts) == parts
    unlike = [Moments(5, 0.0, 1.0), Moments(5, 1e9, 1.0)]
    assert Moments.bounded(unlike) == unlike
    constant = [Moments(5, 3.0, 0.0)] * 5
    assert Moments.bounded([*constant, Moments(5, 4.0, 10.0)])[-1] == Moments(5, 4.0, 10.0)


def test_noisy_sums_are_moved_to_what_the_samples_allow():
    assert NoisySums(-1e200, 5.0, 5.0).possible(40) == NoisySums(0.0, 0.0, 0.0)
    assert NoisySums(1e200, -1e9, -3.0).possible(40) == NoisySums(40.0, -20.0, 0.0)
    assert NoisySums(39.5, 3.0, 2.0).possible(40) == NoisySums(39.5, 3.0, 2.0)


def test_a_client_with_impossible_noisy_sums_changes_little():
    schema = {"x": Declared("number", 0.0, 200.0)}
    prepare = parse_prepare("federated:epsilon=10")
    messages = [
        summarise_columns({"x": each}, schema, prepare, np.random.default_rng(k))
        for k, each in enumerate(honest())
    ]
    before = step_of(messages, prepare, schema)
    spread = np.concatenate([each.values for each in honest()]).std()
    for lie in (
        {"count": -1e200, "sum": 1e200, "squares": -1e200},
        {"count": 50.0, "sum": 25.0, "squares": 12.5},
        {"count": 1e200, "sum": -1e200, "squares": 1e200},
    ):
        after = step_of([*messages, {"x": lie}], prepare, schema)
        assert abs(after.center - before.center) < spread
        assert abs(after.scale - before.scale) < spread


@pytest.mark.parametrize(
    ("kind", "prepare", "change", "message"),
    [
        ("number", "federated", {"squares": 1e219}, "squares must be from 0 to"),
        ("number", "federated", {"mean": 1e101}, "mean must be a finite number"),
        ("ranged", "federated", {"mean": 250.0}, "mean must be in the range"),
        ("ranged", "federated", {"squares": 50 * 101.0**2}, "squares must be from 0 to"),
        ("ranged", "federated:scale=robust",
         {"sketch": {"values": [300.0], "weights": [50]}}, "sketch must have values in the range"),
        ("text", "federated:length=4", {"counts": {"pain": 2**53}}, "from 0 to 200"),
        ("text", "federated:length=4", {"counts": {"a": 150, "b": 150}}, "at most 200"),
    ],
)  # fmt: skip
def test_statistics_that_no_table_has_are_refused(kind, prepare, change, message):
    columns = {
        "number": honest(1)[0], "ranged": honest(1)[0],
        "text": Column.of(np.array(["the pain is worse today"] * 50)),
    }  # fmt: skip
    declared = {
        "number": Declared("number"), "ranged": Declared("number", 0.0, 200.0),
        "text": Declared("text"),
    }  # fmt: skip
    schema, chosen = {"x": declared[kind]}, parse_prepare(prepare)
    sent = summarise_columns({"x": columns[kind]}, schema, chosen)
    check_summary(json.loads(json.dumps(sent)), schema, chosen, 50)
    with pytest.raises(ValueError, match=message):
        check_summary({"x": {**sent["x"], **change}}, schema, chosen, 50)
