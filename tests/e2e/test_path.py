"""The path of ``unskew compare`` through the code is the one that docs/architecture.md names."""

import re
import sys
from pathlib import Path

import pytest

import unskew
from unskew.cli import main

ROOT = Path(__file__).parents[2]
PREFIX = f"{Path(unskew.__file__).parent}/"


def documented_path():
    """Return the modules and functions of the table, in its order."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = text.split("## `unskew compare` in ten modules")[1].split("\n## ")[0]
    return re.findall(r"^\|[^|]+\| `([\w/.]+)` \| `([\w.]+)` \|", section, re.MULTILINE)


def test_the_documented_path_has_ten_modules():
    path = documented_path()
    assert len({module for module, _ in path}) == 10
    assert len(path) == len(set(path))


PASSED_THROUGH = {
    "cli/__init__.py",
    "cli/commands.py",
    "composition/hook_calls.py",
    "engine/pure_hooks.py",
}
"""The entry of the command line, the errors of commands: what lies before the steps; and the checks
of hooks, through which they are called."""


def test_a_comparison_calls_the_documented_functions_in_order(tmp_path, monkeypatch):
    path, called, modules = documented_path(), [], set()

    def record_first_call(frame, event, _):
        if event != "call" or not frame.f_code.co_filename.startswith(PREFIX):
            return
        step = (_module(frame.f_code), frame.f_code.co_qualname)
        if step in path and step not in called:
            called.append(step)
            while frame is not None:
                modules.add(_module(frame.f_code))
                frame = frame.f_back

    command = "unskew compare --methods ida,fedavg --clients 2 --rounds 1 --seeds 2 --jobs 1"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [*command.split(), "--set", "runner=loop"])
    sys.setprofile(record_first_call)
    try:
        with pytest.raises(SystemExit, match="0"):
            main()
    finally:
        sys.setprofile(None)
    assert called == path
    assert modules - {None} - PASSED_THROUGH == {module for module, _ in path}


def _module(code):
    """Return the module of a code object in the package; None for other code."""
    path = code.co_filename
    return path[len(PREFIX) :] if path.startswith(PREFIX) else None
