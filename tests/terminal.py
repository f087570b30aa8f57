"""A terminal for tests of the command line."""

import json
import math
import sys
from dataclasses import dataclass
from typing import Any

import pytest

PROGRAM = [sys.executable, "-c", "from unskew.cli import main; main()"]
"""The command as a separate process."""


@dataclass
class Terminal:
    """Runs commands in this process, so that torch is loaded once, and returns their output.

    No command prints how long its runs will take: whether it would depends on the machine.
    """

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __post_init__(self) -> None:
        self.monkeypatch.setattr("unskew.engine.progress._WORTH_A_LINE", math.inf)

    def run(self, *arguments: object) -> tuple[int, str, str]:
        from unskew.cli import main

        self.monkeypatch.setattr("sys.argv", ["unskew", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        assert isinstance(end.value.code, int)
        return end.value.code, *self.capsys.readouterr()

    def output(self, *arguments: object) -> str:
        code, output, errors = self.run(*arguments)
        assert (code, errors) == (0, ""), output
        return output

    def json(self, *arguments: object) -> Any:
        return json.loads(self.output(*arguments, "--json"), parse_constant=pytest.fail)

    def error(self, *arguments: object) -> str:
        """Return the one-line error message of a command with invalid input."""
        code, output, errors = self.run(*arguments)
        assert (code, output) == (2, ""), errors
        assert errors.count("\n") == 1
        assert errors.startswith("error: ")
        return errors
