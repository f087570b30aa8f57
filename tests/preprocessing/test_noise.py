"""Statistics under a privacy budget."""

import numpy as np
import pytest
from test_federated_equals_pooled import prepared

from unskew.data.preprocessing.cells import Column
from unskew.data.preprocessing.declared import Declared, declared_columns
from unskew.data.preprocessing.moments import Moments
from unskew.data.preprocessing.noise import NoisySums, noise_scale
from unskew.data.preprocessing.protocol import declared_schema, summarise_columns
from unskew.data.preprocessing.spec import parse_prepare
from unskew.errors import UnskewError

DECLARED = declared_columns("age=0..100,ward=A|B,smokes=boolean")


def visits(samples, age=40.0):
    rng = np.random.default_rng(0)
    ages = rng.normal(age, 10, samples)
    return {"age": ages, "ward": np.array(["A", "C"] * (samples // 2)),
            "smokes": np.array(["yes", ""] * (samples // 2))}  # fmt: skip


def test_one_record_changes_the_sums_by_at_most_the_sensitivity():
    rng = np.random.default_rng(0)
    exact = [NoisySums.of(np.array(v), 0, 100, 0.0, rng) for v in ([50.0, 0], [50.0, 0, 1e9])]
    assert [exact[0].count, exact[0].sum, exact[0].squares] == [2, -0.5, 0.25]
    changes = [abs(a - b) for a, b in zip(*(vars(e).values() for e in exact), strict=True)]
    assert changes == [1, 0.5, 0.25]
    assert sum(changes) == noise_scale(1, 1.0)
    assert noise_scale(4, 0.5) == 8 * noise_scale(1, 1.0)


def test_the_noise_is_laplace_of_the_stated_scale():
    rng = np.random.default_rng(1)
    drawn = [vars(NoisySums.of(np.empty(0), 0, 1, 3.0, rng)).values() for _ in range(4000)]
    numbers = np.array([list(each) for each in drawn])
    assert np.abs(numbers).mean(0) == pytest.approx([3, 3, 3], rel=0.06)
    assert (numbers**2).mean(0) == pytest.approx([18, 18, 18], rel=0.15)


def test_without_noise_the_sums_are_the_moments():
    values = np.array([10.0, 20, 60])
    sums = NoisySums.of(values, 0, 100, 0.0, np.random.default_rng(0))
    moments = sums.moments(0, 100)
    assert moments.mean == pytest.approx(30)
    assert moments.std == pytest.approx(Moments.of(values).std)


def test_statistics_have_noise_and_say_nothing_else():
    clients = [visits(2000), visits(1000)]
    options = {"declared": DECLARED, "prepare": "federated:epsilon=1"}
    first = prepared(clients, **options, seed=1).transform
    age, ward, smokes = first.columns
    assert age.center == pytest.approx(40, abs=1)
    assert age.scale == pytest.approx(10, abs=2)
    assert age.center != prepared(clients, declared=DECLARED).transform.columns[0].center
    assert first == prepared(clients, **options, seed=1).transform
    assert first != prepared(clients, **options, seed=2).transform
    # The categories are the declared ones, and gaps are always marked.
    assert ward.levels == ("A", "B")
    assert ward.gap
    assert smokes.gap


def test_with_little_data_noise_leaves_a_usable_scale():
    (age, *_) = prepared(
        [visits(2)], "federated:epsilon=0.01", declared=DECLARED, seed=3
    ).transform.columns
    assert 0 <= age.center <= 100
    assert 0 < age.scale <= 50


@pytest.mark.parametrize("ends", [(None, None), (0.0, None), (None, 1.0)])
def test_a_number_without_a_range_is_never_sent(ends):
    columns = {"age": Column.of(np.arange(3.0))}
    schema, private = {"age": Declared("number", *ends)}, parse_prepare("federated:epsilon=1")
    with pytest.raises(UnskewError, match="has no range"):
        summarise_columns(columns, schema, private, np.random.default_rng(0))
    with pytest.raises(UnskewError, match="has no range"):
        declared_schema(["age"], schema, private, "server")
    with pytest.raises(UnskewError, match="no source of noise"):
        summarise_columns(columns, {"age": Declared("number", 0, 1)}, private)


def test_nothing_is_found_out_from_the_data():
    said = declared_columns("age=number,ward=category")
    with pytest.raises(UnskewError, match=r"'age' has no range; .*'ward' has no list.*'smokes' is"):
        prepared([visits(4)], "federated:epsilon=1", declared=said)
    with pytest.raises(UnskewError, match="quantiles have no noise"):
        prepared([visits(4)], "federated:epsilon=1,scale=robust", declared=DECLARED)
    with pytest.raises(UnskewError, match="has no option 'epsilon'"):
        prepared([visits(4)], "pooled:epsilon=1")
