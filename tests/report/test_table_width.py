"""The table of a comparison is complete in a terminal of 80 columns."""

import io

import pytest
from rich.console import Console

from unskew.utils.tables import Table

COLUMNS = ("method", "accuracy", "local", "personal", "worst", "rounds to 91 %", "MB to 91 %")
ROWS = [
    ("feddyn:alpha=0.1", "95.45 ± 0.80 %", "97.00 %", "97.00 %", "82.76 %",
     "37.0 (1/3 seeds)", "174.92"),
    ("fedavg", "93.13 ± 0.16 %", "92.33 %", "92.33 %", "55.71 %", "35.3", "84.86"),
]  # fmt: skip


@pytest.mark.parametrize("width", [26, 40, 60])
def test_columns_that_do_not_fit_are_printed_in_further_tables(width):
    out = io.StringIO()
    Console(file=out, width=width).print(Table(COLUMNS, ROWS, title="the title"))
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert text.count("the title") == 1
    for cell in ("95.45 ± 0.80 %", "97.00 %", "82.76 %", "174.92", "93.13 ± 0.16 %", "84.86"):
        assert cell in text


@pytest.mark.parametrize("width", [80, 100])
def test_no_number_is_cut_off(width):
    out = io.StringIO()
    Console(file=out, width=width).print(Table(COLUMNS, ROWS))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for row in ROWS:
        (line,) = (line for line in lines if line.strip().startswith(row[0]))
        assert all(cell.partition(" (")[0] in line for cell in row)


def test_a_long_name_is_wrapped_and_numbers_are_complete():
    name = "feddisk:density_rounds=20,local_rounds=10,ratio_rounds=10,estimator=classifier"
    out = io.StringIO()
    Console(file=out, width=80).print(Table(COLUMNS, [*ROWS, (name, *ROWS[1][1:])]))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in out.getvalue()
    names = [line[: line.index("93.13")] if "93.13" in line else line for line in lines]
    assert name in "".join(part.strip() for part in names)
    assert sum("93.13 ± 0.16 %" in line and "55.71 %" in line for line in lines) == 2


def printed(table, width):
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue()


def test_names_are_complete_if_they_fit():
    table = Table(("method", "accuracy"), [("fedavg (tuned, lr=0.1)", "93.13 %")])
    assert "fedavg (tuned, lr=0.1)" in printed(table, 100)


def test_spare_width_is_used_in_a_narrow_terminal():
    columns = ("method", "accuracy", "rounds to the target", "MB to the target")
    row = ("a-name-that-is-long", "93.13 %", "12 (2 of 3 seeds)", "7.25")
    text = printed(Table(columns, [row]), 60)
    assert max(map(len, text.splitlines())) <= 60
    assert "12 (2 of 3 seeds)" in text


def test_tables_of_one_column_or_no_row_are_printed():
    assert "title" in printed(Table(("method",), [("fedavg",)], title="title"), 80)
    assert printed(Table(("",), []), 80)
