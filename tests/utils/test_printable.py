"""Names from files and folders cannot control a terminal, a page or a spreadsheet."""

import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.data.names import printable_names
from unskew.utils.printable import encoded, printable
from unskew.utils.tables import Table


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain", "plain"),
        ("näme ± 3 µ 漢", "näme ± 3 µ 漢"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\nb", "a\\x0ab"),
        ("\x9b1m", "\\x9b1m"),
        ("\udcff", "\\udcff"),
        ("\u202eabc", "\\u202eabc"),
        ("no\u00a0break", "no\u00a0break"),
    ],
)
def test_unsafe_characters_become_escapes(text, safe):
    assert printable(text) == safe
    assert printable_names(np.array([text, "x"])).tolist() == [safe, "x"]


def test_some_characters_can_be_kept():
    assert printable("a\nb\x1b", keep="\n") == "a\nb\\x1b"


@given(st.text())
def test_any_text_can_be_encoded_afterwards(text):
    assert encoded(printable(text)).decode() == printable(text)


def test_arrays_without_unsafe_names_are_not_copied():
    names = np.array(["a", "b"])
    assert printable_names(names) is names
    assert printable_names(np.array(["a\x1b", "b"]).astype(">U2")).tolist() == ["a\\x1b", "b"]


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ('=HYPERLINK("http://x")', '\'=HYPERLINK("http://x")'),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+1+cmd|' /C calc'!A0", "'+1+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("-2.5", "-2.5"),
        ("+1.20 (not significant)", "+1.20 (not significant)"),
        ("-1.5e-07", "-1.5e-07"),
        ("75.00 ± 7.07 %", "75.00 ± 7.07 %"),
        ("-", "-"),
        ("fedprox:mu=0.1", "fedprox:mu=0.1"),
    ],
)
def test_a_spreadsheet_executes_nothing(cell, written):
    (_, (read,)) = csv.reader(io.StringIO(Table(["name"], [[cell]]).to_csv()))
    assert read == written


def test_a_terminal_gets_neither_escapes_nor_markup(capsys):
    from unskew.cli.output import print_rich

    print_rich(Table(["a", "[/b]"], [["\x1b]0;title\x07", "[red]:smile:"]], title="[/x]"))
    output = capsys.readouterr().out
    assert "\x1b" not in output
    assert {"[/b]", "[red]:smile:", "[/x]", "\\x1b]0;title\\x07"} <= set(output.split())
