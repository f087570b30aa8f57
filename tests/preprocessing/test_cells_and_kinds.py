"""What cells are read as, and what a column is found to hold."""

from datetime import date
from decimal import Decimal

import numpy as np
import pytest

from unskew.data.preprocessing.cells import Column
from unskew.data.preprocessing.declared import Declared, declared_columns
from unskew.data.preprocessing.kinds import Evidence
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


def test_evidence_adds_up_to_the_evidence_of_all_cells():
    cells = ["1", "x", "yes", "", "2024-01-31", "two words", "inf"]
    parts = [Evidence.of(column(*cells[:3])), Evidence.of(column(*cells[3:]))]
    assert Evidence.total(parts) == Evidence.of(column(*cells))


def test_a_few_odd_cells_among_numbers_are_a_problem():
    numbers = [str(i) for i in range(19)]
    assert Evidence.of(column(*numbers, "unknown")).problem() == (
        "1 of 20 cells are not numbers, and all others are"
    )
    assert "infinite" in Evidence.of(column(*numbers, "inf")).problem()
    assert Evidence.of(column("1", "a", "b")).problem() is None


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
