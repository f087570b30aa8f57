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


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["data", "--help"]]
    + [[command, "--help"] for command in ("run", "compare", "report", "watch")]
    + [[command, "--help"] for command in ("methods", "models")]
    + [["data", command, "--help"] for command in ("list", "partitioners", "fetch", "show")]
    + [["study", command, "--help"] for command in ("list", "show", "run", "index")]
    + [["flower", "--help"]]
    + [["flower", command, "--help"] for command in ("new", "up", "sends")],
)
def test_help_is_light(arguments):
    program = (
        "import sys; from unskew.cli import main\n"
        f"sys.argv = ['unskew', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code"
    )
    assert loaded(program) == "[]"


def test_public_names_are_there():
    from unskew.data.federation import Federation
    from unskew.errors import UnskewError

    assert unskew.Federation is Federation
    assert unskew.UnskewError is UnskewError
    assert callable(unskew.load)
    assert set(dir(unskew)) == set(unskew.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(unskew, "nothing")  # noqa: B009
