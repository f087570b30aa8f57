"""The path of ``unskew compare`` through the code is the one that docs/architecture.md names."""

import re
import sys
from pathlib import Path

import pytest

import unskew
from unskew.cli import main

ROOT = Path(__file__).parents[2]
PACKAGE = Path(unskew.__file__).parent


def documented_path():
    """Return the modules and functions of the table, in its order."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = text.split("## `unskew compare` in ten steps")[1].split("\n## ")[0]
    return re.findall(r"^\|[^|]+\| `([\w/.]+)` \| `([\w.]+)` \|", section, re.MULTILINE)


def test_the_documented_path_has_ten_modules():
    path = documented_path()
    assert len(path) == len({module for module, _ in path}) == 10


def test_a_comparison_calls_the_documented_functions_in_order(tmp_path, monkeypatch):
    path, called = documented_path(), []

    def record_first_call(frame, event, _):
        code = frame.f_code
        step = (code.co_filename.removeprefix(f"{PACKAGE}/"), code.co_qualname)
        if event == "call" and step in path and step not in called:
            called.append(step)

    command = "unskew compare --methods fedavg --clients 2 --rounds 1 --seeds 2 --jobs 1"
    options = ["--set", "runner=loop", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", [*command.split(), *options])
    sys.setprofile(record_first_call)
    try:
        with pytest.raises(SystemExit, match="0"):
            main()
    finally:
        sys.setprofile(None)
    assert called == path
