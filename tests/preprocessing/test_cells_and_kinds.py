"""What cells are read as, and what a column is found to hold."""

from datetime import date
from decimal import Decimal

import numpy as np
import pytest

from unskew.data.preprocessing.cells import Column
from unskew.data.preprocessing.declared import Declared, declared_columns
from unskew.data.preprocessing.identifying import identifying
from unskew.data.preprocessing.kinds import Evidence, agreed_kind
from unskew.data.preprocessing.labels import spelled_otherwise
from unskew.errors import UnskewError


def column(*cells):
    return Column.of(np.array(cells, str))


def column_of_values(values):
    """Return a column of Python objects, as a DataFrame holds them."""
    array = np.empty(len(values), object)
    array[:] = values
    return Column.of(array)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", " 2.5", "-6e1", ""], "number"),
        (["0", "1"], "number"),
        (["yes", "No", "?"], "boolean"),
        (["True", "false"], "boolean"),
        (["2024-01-31", "1969-12-31T12:00", "NaT"], "date"),
        (["red", "blue", "1"], "category"),
        (["the patient fell at home", "no pain since then at all"], "text"),
        (["", "NA", "null"], "empty"),
    ],
)
def test_the_kind_of_a_column(cells, kind):
    assert Evidence.of(column(*cells)).kind() == kind


def test_cells_of_csv_files_and_of_typed_columns_are_the_same():
    days = column("1970-01-02", "1970-01-01T12:00+00:00", "").dates()
    np.testing.assert_array_equal(days, [1, 0.5, np.nan])
    typed = Column.of(np.array(["1970-01-02", "1970-01-01T12:00", "NaT"], "datetime64[s]"))
    np.testing.assert_array_equal(typed.dates(), days)
    np.testing.assert_array_equal(column("1", "x", "").numbers(), [1, np.nan, np.nan])
    np.testing.assert_array_equal(column("Y", "0", "maybe").booleans(), [1, 0, np.nan])
    assert Column.of(np.array([3, 2.5, np.nan])).texts().tolist() == ["3", "2.5", ""]
    assert column(" a ", "NA").texts().tolist() == ["a", ""]


def test_python_values_keep_the_type_that_all_of_them_have():
    assert column_of_values([True, None, False]).stored == "boolean"
    numbers = column_of_values([1, 2.5, Decimal("3"), None])
    np.testing.assert_array_equal(numbers.values, [1, 2.5, 3, np.nan])
    assert column_of_values([1, "a", True, date(2024, 1, 31)]).texts().tolist() == [
        "1", "a", "true", "2024-01-31",
    ]  # fmt: skip
    with pytest.raises(UnskewError, match=r"column 'x' must hold one number, text, .*got list"):
        column_of_values([[1]])


def test_a_few_odd_cells_among_numbers_are_a_problem():
    numbers = [str(i) for i in range(19)]
    odd = Evidence.of(column(*numbers, "unknown"))
    assert (odd.kind(), odd.problem_as("number")) == ("number", "1 of 20 cells are not numbers")
    assert "infinite" in Evidence.of(column(*numbers, "inf")).problem_as("number")
    assert Evidence.of(column("1", "a", "b")).kind() == "category"
    assert Evidence.of(column("1", "a", "b")).problem_as("category") is None


def test_a_column_holds_what_it_holds_at_most_clients():
    numbers, commas = column("1.5", "2.5"), column("1,5", "2,5")
    words, gaps = column("a", "b"), column("", "")
    texts = column("no pain since then at all", "the patient fell at home")
    for columns, kind in (
        ([numbers, numbers, commas], "number"),
        ([numbers, commas], "number"),
        ([numbers, words, words, gaps], "category"),
        ([gaps, gaps, texts], "text"),
        ([gaps], "empty"),
    ):
        assert agreed_kind([Evidence.of(each) for each in columns]) == kind


def test_columns_that_are_nearly_unique_per_row_are_named():
    rng = np.random.default_rng(0)
    columns = {
        "patient": Column.of(np.array([f"p{k}" for k in range(200)])),
        "seen": column(*(f"2024-03-01T{k // 60:02}:{k % 60:02}" for k in range(200))),
        "row": Column.of(np.arange(200)),
        "case_id": Column.of(rng.permutation(10**6)[:200]),
        "day": column(*(f"2024-03-{1 + k % 28:02}" for k in range(200))),
        "income": Column.of(rng.normal(5e4, 1e4, 200)),
        "salary": Column.of(rng.permutation(10**6)[:200]),
        "age": Column.of(rng.integers(20, 90, 200)),
        "ward": Column.of(rng.choice(["eyes", "heart"], 200)),
    }
    kinds = {name: Evidence.of(each).kind() for name, each in columns.items()}
    found = identifying(columns, kinds)
    assert list(found) == ["patient", "seen", "row", "case_id"]
    assert (
        found["patient"]
        == "has 200 different values, such as 'a9', in 200 rows, so it identifies rows"
    )
    few = {name: each.take(np.arange(15)) for name, each in columns.items()}
    assert identifying(few, kinds) == {}


def test_columns_can_be_declared():
    found = declared_columns("age=0..120,ward=category,sex=f|m,seen=2020-01-01..2020-01-11")
    assert found["age"] == Declared("number", 0, 120)
    assert found["sex"] == Declared("category", levels=("f", "m"))
    assert found["seen"].high - found["seen"].low == 10
    assert declared_columns({"age": (0, 120), "sex": ["m", "f"]}) == {
        "age": found["age"], "sex": found["sex"],
    }  # fmt: skip


@pytest.mark.parametrize("said", ["age", "age=old", "age=5..1", {"age": 3}, {"age": []}, "age=|"])
def test_a_wrong_declaration_names_the_column(said):
    with pytest.raises(UnskewError, match=r"columns: .*'age'"):
        declared_columns(said)


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ([["died", "left"]] * 2 + [["Died", "Left"]], [2]),
        ([["died", "left"]] * 2 + [["left", "died "]], [2]),
        ([["died", "left"]] * 2 + [["dead", "alive"]], [2]),
        ([["died", "left"]] * 2 + [["moved"]], []),
        ([["a", "b"], ["c", "d"], ["e", "f"]], []),
        ([["died"], ["left"], ["moved", "left"]], []),
        ([["died", "left"], ["Died", "Left"]], []),
        ([[0, 1], [0, 1], [2, 3]], []),
        ([["+"], ["-", "+"], ["-"]], []),
    ],
)  # fmt: skip
def test_labels_that_are_spelled_otherwise(labels, found):
    assert list(spelled_otherwise(dict(enumerate(labels)))) == found
