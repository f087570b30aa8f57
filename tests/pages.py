"""Documentation pages whose examples are run."""

import re
import shlex
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from terminal import Terminal

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

SKIPPED = ("unskew data fetch", "unskew flower up")
"""Commands that need a package registry, or a minute of real processes (tests/flower_deploy)."""


def examples(page: str) -> list[tuple[str, str]]:
    """Return each Python example of a page with the output that follows it."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(found) == text.count("```text"), f"{page}: an output without its example"
    return found


def printed(code: str, names: dict[str, object] | None = None) -> str:
    """Run an example and return its output."""
    output = StringIO()
    with redirect_stdout(output):
        exec(compile(code, "an example", "exec"), {} if names is None else names)
    return output.getvalue()


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the language and the text of each code block of a page."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[list[str]]:
    """Return the ``unskew`` commands of a block; other programs prepare what tests have."""
    lines = block.replace("\\\n", " ").splitlines()
    return [
        shlex.split(line, comments=True)
        for line in lines
        if line.startswith("unskew ") and not line.startswith(SKIPPED)
    ]


def run_page(page: Path, terminal: Terminal) -> dict[str, object]:
    """Run the examples of a page in their order, with two rounds instead of many.

    Python examples share one namespace, which is returned, and must print the ``text`` that
    follows them. Output of training is marked ``output`` and is not compared. TOML is written to
    ``experiment.toml`` first.
    """
    names: dict[str, object] = {"__name__": "page"}
    found = blocks(page)
    for language, text in found:
        if language == "toml":
            Path("experiment.toml").write_text(_quick(text), encoding="utf-8")
    output = ""
    for language, text in found:
        if language == "python" and "unskew.flower" not in text:  # only server apps have a grid
            output = printed(_quick(text), names)
        elif language == "text":
            assert output == text
        elif language == "sh":
            for command in commands(_quick(text)):
                code, _, errors = terminal.run(*command[1:])
                lines = [line for line in errors.splitlines() if not line.startswith("decided: ")]
                assert (code, lines) == (0, []), command
    return names


def _quick(text: str) -> str:
    return re.sub(r"(\brounds ?= ?|--rounds )\d+", r"\g<1>2", text)
