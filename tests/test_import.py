import ast
import subprocess
import sys

import pytest

import unskew

HEAVY = ("torch", "matplotlib", "flwr", "sklearn", "PIL", "scipy", "numpy")
WATCH = f"import sys; print([name for name in {HEAVY!r} if name in sys.modules])"


def loaded(program: str) -> str:
    """Run a program in a fresh interpreter and return the heavy packages it loaded."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{WATCH}"], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1]


def test_import_is_light():
    assert loaded("import unskew") == "[]"


def test_the_watch_notices_a_heavy_import():
    assert loaded("import numpy") == "['numpy']"


EVERY_HELP = f"""
import sys, typer
from unskew.cli import app, main

def paths(command, path=()):
    yield path
    for name, inner in getattr(command, "commands", {{}}).items():
        yield from paths(inner, (*path, name))

shown, loaded_by = [], {{}}
commands = paths(typer.main.get_command(app))
for arguments in [["--version"], *([*path, "--help"] for path in commands)]:
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        assert not end.code, arguments
    shown.append(" ".join(arguments))
    for name in {HEAVY!r}:
        if name in sys.modules:
            loaded_by.setdefault(name, shown[-1])
print(shown, loaded_by, sep="\\n")
"""
"""Shows the help of every command, then prints which were shown and which loaded heavy modules."""


def test_every_help_is_light():
    done = subprocess.run(
        [sys.executable, "-c", EVERY_HELP], capture_output=True, text=True, check=True
    )
    shown, loaded_by = done.stdout.splitlines()[-2:]
    assert {
        "--version", "--help", "run --help", "compare --help", "report --help", "watch --help",
        "methods --help", "models --help", "data --help", "data show --help", "data fetch --help",
        "data partitioners --help",
        "study --help", "study run --help", "flower --help", "flower new --help",
        "flower up --help", "flower sends --help",
    } <= set(ast.literal_eval(shown))  # fmt: skip
    assert loaded_by == "{}"


def test_public_names_are_there():
    from unskew.data.federation import Federation
    from unskew.errors import UnskewError

    assert unskew.Federation is Federation
    assert unskew.UnskewError is UnskewError
    assert callable(unskew.load)
    assert set(dir(unskew)) == set(unskew.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(unskew, "nothing")  # noqa: B009
